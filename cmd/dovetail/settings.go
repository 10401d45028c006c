package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/legacy/globalsettings"
)

const settingsHelp = `Turn the ConfigMap ` + globalsettings.Name + `, which holds the settings of Karpenter before 0.33, into values for Dovetail's chart.

The values go to standard output; what has no effect in Dovetail goes to standard error, with what to do instead. ProvisionArgs has the
same settings under the same names.`

const settingsExamples = `  kubectl -n karpenter get configmap ` + globalsettings.Name + ` -o yaml | dovetail settings - > settings.yaml`

func settingsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "settings FILE", Short: "Chart values from the settings of an old Karpenter", Long: settingsHelp, Example: settingsExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("one file is needed, or - for standard input; there are %d", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in, name := cmd.InOrStdin(), "standard input"
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer func() { _ = f.Close() }()
				in, name = f, args[0]
			}
			raw, err := io.ReadAll(in)
			if err != nil {
				return err
			}
			s, warnings, err := globalsettings.Parse(raw)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, w := range warnings {
				cmd.PrintErrf("Warning: %s\n", w)
			}
			text, err := yaml.Marshal(map[string]globalsettings.Settings{"settings": s})
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}
