package ec2

import (
	"encoding/base64"
	"net/http"
	"strings"
)

// SetCluster sets the API server's endpoint and CA that DescribeCluster returns.
func (s *Sim) SetCluster(endpoint string, ca []byte) {
	s.with(func(w *world) { w.cfg.ClusterEndpoint, w.cfg.ClusterCA = endpoint, ca })
}

// SetKubernetesVersion upgrades the cluster's control plane: DescribeCluster returns the version (major.minor).
func (s *Sim) SetKubernetesVersion(version string) {
	s.with(func(w *world) { w.cfg.KubernetesVersion = version })
}

func (w *world) describeCluster(r *Request) (any, error) {
	name := strings.TrimPrefix(r.path, "/clusters/")
	if name != w.cfg.Cluster {
		return nil, &apiError{Code: "ResourceNotFoundException", Message: "No cluster found for name: " + name + ".", Status: http.StatusNotFound}
	}
	var subnets []string
	for _, s := range w.network.subnets {
		subnets = append(subnets, s.id)
	}
	return map[string]any{"cluster": map[string]any{
		"name": name, "arn": w.arn("eks", "cluster/"+name), "status": "ACTIVE", "version": w.cfg.KubernetesVersion, "platformVersion": "eks.1",
		"endpoint": w.cfg.ClusterEndpoint, "createdAt": float64(released[0].Unix()), "roleArn": w.arn("iam", "role/"+name),
		"certificateAuthority":    map[string]string{"data": base64.StdEncoding.EncodeToString(w.cfg.ClusterCA)},
		"kubernetesNetworkConfig": services(w.cfg.IPv6),
		"resourcesVpcConfig": map[string]any{
			"vpcId": w.network.vpc, "subnetIds": subnets, "securityGroupIds": []string{}, "clusterSecurityGroupId": w.network.groups[0].id,
			"endpointPublicAccess": true, "endpointPrivateAccess": true,
		},
		"identity": map[string]any{"oidc": map[string]string{"issuer": "https://oidc.eks." + w.cfg.Region + ".amazonaws.com/id/SIMULATED"}},
		"tags":     map[string]string{},
	}}, nil
}

// services returns the address range of Services. EKS returns it for one IP family only.
func services(ipv6 bool) map[string]any {
	if ipv6 {
		return map[string]any{"serviceIpv6Cidr": "fd30:1c53:5f8a::/108", "ipFamily": "ipv6"}
	}
	return map[string]any{"serviceIpv4Cidr": "172.20.0.0/16", "ipFamily": "ipv4"}
}

func (w *world) getCallerIdentity(*Request) (any, error) {
	return struct{ Arn, UserId, Account string }{"arn:aws:iam::" + w.cfg.Account + ":user/simulated", "AIDASIMULATED", w.cfg.Account}, nil
}
