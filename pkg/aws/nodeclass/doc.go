// Package nodeclass is EC2NodeClass as the rest of the program sees it (cloudprovider.NodeClassKind): its names in the API, its hash,
// and the node classes that the AWS settings of Provisioners and AWSNodeTemplates are converted to.
//
// It makes no request: package aws resolves node classes.
package nodeclass
