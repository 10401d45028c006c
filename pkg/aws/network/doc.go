// Package network looks up subnets and security groups, and counts the free addresses of subnets.
package network
