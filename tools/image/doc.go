// Command image makes the container image of dovetail-scheduler with nothing but Go: no Docker, no base image and no registry. It also writes its
// software bill of materials and the repository's NOTICE, and pushes the image.
//
// Image, SBOM and NOTICE follow from the sources alone: whoever builds the same commit with the same Go gets the same digest.
package main
