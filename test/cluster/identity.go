package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// identity is a user of the API server, as a client config and as a kubeconfig file.
type identity struct {
	config *rest.Config
	path   string
}

// newIdentity writes DIR/NAME.kubeconfig. The config has no client-side rate limit, so that tests and simulated kubelets never wait
// for their own client.
func newIdentity(dir, name string, config *rest.Config) (*identity, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "dovetail-test/" + name
	const context = "dovetail-test"
	file := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{context: {
			Server:                   config.Host,
			CertificateAuthority:     config.CAFile,
			CertificateAuthorityData: config.CAData,
			TLSServerName:            config.ServerName,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: context, AuthInfo: name}},
		CurrentContext: context,
	}
	path := filepath.Join(dir, name+".kubeconfig")
	if err := clientcmd.WriteToFile(file, path); err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return &identity{config: config, path: path}, nil
}

// serviceAccountIdentity requests a token of the ServiceAccount from the API server. It is valid for a day, which is longer than the
// cluster lives.
func (c *Cluster) serviceAccountIdentity(ctx context.Context, namespace, name string) (*identity, error) {
	client, err := kubernetes.NewForConfig(c.admin.config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 60 * 60)}}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking for a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(c.admin.config)
	config.BearerToken = token.Status.Token
	return newIdentity(c.Dir, name, config)
}

// ServiceAccountConfig returns a config of a ServiceAccount, and the path of its kubeconfig.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, string, error) {
	account, err := c.serviceAccountIdentity(ctx, namespace, name)
	if err != nil {
		return nil, "", err
	}
	return account.config, account.path, nil
}

// AdminConfig returns a config with all permissions. It is for the test itself, never for the scheduler.
func (c *Cluster) AdminConfig() *rest.Config { return rest.CopyConfig(c.admin.config) }

// AdminKubeconfig returns the path of a kubeconfig with all permissions.
func (c *Cluster) AdminKubeconfig() string { return c.admin.path }

// SchedulerConfig returns a config of the shipped ServiceAccount kube-system/dovetail-scheduler, which has the shipped RBAC. With the manifests
// "replace" or NoManifests it is that of the user system:kube-scheduler.
func (c *Cluster) SchedulerConfig() *rest.Config { return rest.CopyConfig(c.scheduler.config) }

// SchedulerKubeconfig returns the path of the kubeconfig of SchedulerConfig.
func (c *Cluster) SchedulerKubeconfig() string { return c.scheduler.path }

// NodesConfig returns a config with the permissions of a kubelet (ClusterRole system:node), for the simulator's kubelets.
func (c *Cluster) NodesConfig() *rest.Config { return rest.CopyConfig(c.nodes.config) }

// NodesKubeconfig returns the path of the kubeconfig of NodesConfig.
func (c *Cluster) NodesKubeconfig() string { return c.nodes.path }

func withUnversionedCodec(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return config
}
