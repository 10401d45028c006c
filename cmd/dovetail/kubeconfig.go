package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

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

// problem returns the error to show for an error of loader's. client-go says the same of a missing file as of an empty one, and advises to set an
// environment variable that it doesn't read.
func (k *kubeFlags) problem(err error) error {
	if !clientcmd.IsEmptyConfig(err) {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	var missing []string
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	for _, file := range rules.Precedence {
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, file)
		}
	}
	if len(missing) == 0 {
		return fmt.Errorf("kubeconfig: no cluster is configured in %s", strings.Join(rules.Precedence, ", "))
	}
	return fmt.Errorf("kubeconfig: there is no file %s: set KUBECONFIG, or give --kubeconfig", strings.Join(missing, ", "))
}
