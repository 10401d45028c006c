package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

const catalogHelp = `Write down what an AWS region offers: instance types, zones, on-demand and spot prices.
'dovetail plan --catalog' reads the file; docs/catalog.md describes it.

Credentials come from the usual sources (environment, shared files, SSO, instance role). They must allow
ec2:DescribeInstanceTypes, ec2:DescribeInstanceTypeOfferings, ec2:DescribeSpotPriceHistory and pricing:GetProducts.`

const catalogExamples = `  dovetail catalog --region eu-west-1 -o catalog.json

  # Into a pipe, in the region of the environment.
  dovetail catalog -o - | jq '.instanceTypes | length'`

func catalogCommand() *cobra.Command {
	var file, region string
	cmd := &cobra.Command{
		Use: "catalog -o FILE [--region REGION]", Short: "What an AWS region offers, as a file", Long: catalogHelp, Example: catalogExamples,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return usageError{errors.New("-o is required: the file to write, or - for standard output")}
			}
			if region == "" {
				region = os.Getenv("AWS_REGION")
			}
			if region == "" {
				region = os.Getenv("AWS_DEFAULT_REGION")
			}
			if region == "" {
				return usageError{errors.New("no region: give --region, or set AWS_REGION")}
			}
			clients, err := sdk.ConnectTool(cmd.Context(), region)
			if err != nil {
				return err
			}
			f, err := catalog.Fetch(cmd.Context(), clients, region, time.Now())
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if err := f.Write(&b); err != nil {
				return err
			}
			if file == "-" {
				_, err := cmd.OutOrStdout().Write(b.Bytes())
				return err
			}
			if err := replace(file, b.Bytes()); err != nil {
				return fmt.Errorf("-o %s: %w", file, err)
			}
			cmd.PrintErrf("Wrote %d instance types of %s to %s\n", len(f.Types), region, file)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write, - for standard output")
	cmd.Flags().StringVar(&region, "region", "", "AWS region (default: AWS_REGION)")
	return cmd
}

// replace writes a file atomically: there is always a complete one under its name.
func replace(name string, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // renamed by then, unless something failed
	_, err = tmp.Write(content)
	if err := errors.Join(err, tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}
