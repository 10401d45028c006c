package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/version"
)

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Which Dovetail this is, and which Kubernetes it was built from",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build := version.Get()
			var text []byte
			var err error
			switch output {
			case "":
				text = fmt.Appendf(nil, "Dovetail Version: %s\nKubernetes Version: %s\nGo Version: %s\n", build.Version, build.KubernetesVersion, build.GoVersion)
			case "json":
				text, err = json.MarshalIndent(build, "", "  ")
				text = append(text, '\n')
			case "yaml":
				text, err = yaml.Marshal(build)
			default:
				return usageError{fmt.Errorf("-o %s: must be json or yaml", output)}
			}
			if err != nil {
				return fmt.Errorf("writing the version: %w", err)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json or yaml (default: lines for people)")
	return cmd
}
