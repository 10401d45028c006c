package main

import (
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeFlags are kubectl's flags that choose a cluster and a user, from client-go. (k8s.io/cli-runtime has the same flags, and triples this
// program's size: its printers call methods by name through text/template, so that the linker must keep every method of AWS's SDK.)
type kubeFlags struct {
	path      string
	overrides clientcmd.ConfigOverrides
}

// add adds the flags. namespace: with -n, --namespace.
func (k *kubeFlags) add(flags *pflag.FlagSet, namespace bool) {
	flags.StringVar(&k.path, "kubeconfig", "", "path of the kubeconfig (default: KUBECONFIG, or ~/.kube/config)")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	if !namespace {
		names.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}
	}
	clientcmd.BindOverrideFlags(&k.overrides, flags, names)
}

// loader reads the kubeconfig when it is asked.
func (k *kubeFlags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.path
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &k.overrides)
}
