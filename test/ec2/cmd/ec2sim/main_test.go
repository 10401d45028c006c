package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
)

func TestItServesACatalogueFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalog.json")
	small := `{"meta": {"region": "us-west-2"}, "instanceTypes": [{"name": "x9.large", "arch": ["arm64"], "vcpus": 2, "memoryMiB": 4096, "maxENIs": 3, "ipv4PerENI": 10,
		"networkCards": 1, "usageClasses": ["on-demand"], "virtualizationTypes": ["hvm"], "zones": ["us-west-2a"], "onDemandUSDPerHour": 0.01}]}`
	if err := os.WriteFile(path, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"--catalog", path, "--region", "eu-central-1", "--zones", "eu-central-1a", "--speed", "10"}, in)
		in.Close()
	}()
	var text strings.Builder
	var endpoint string
	for s := bufio.NewScanner(out); s.Scan(); {
		text.WriteString(s.Text() + "\n")
		if m := regexp.MustCompile(`export AWS_ENDPOINT_URL=(\S+)`).FindStringSubmatch(s.Text()); m != nil {
			endpoint = m[1]
		}
		if !strings.HasPrefix(s.Text(), "Delays are divided by 10") {
			continue
		}
		client := awsec2.New(awsec2.Options{Region: "eu-central-1", BaseEndpoint: &endpoint, Credentials: aws.AnonymousCredentials{}})
		types, err := client.DescribeInstanceTypes(ctx, &awsec2.DescribeInstanceTypesInput{})
		if err != nil {
			t.Error(err)
		} else if len(types.InstanceTypes) != 1 || types.InstanceTypes[0].InstanceType != "x9.large" {
			t.Errorf("types %+v", types.InstanceTypes)
		}
		cancel()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if endpoint == "" {
		t.Errorf("no endpoint in\n%s", text.String())
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"meta": {"region": "us-west-2"}, "instanceTypes": [{"name": "m5.large"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a catalogue that isn't there":  {[]string{"--catalog", "/no/such"}, "--catalog"},
		"a catalogue that is wrong":     {[]string{"--catalog", bad}, "m5.large: vcpus is missing"},
		"a kubeconfig that isn't there": {[]string{"--kubeconfig", "/no/such"}, "--kubeconfig"},
		"an address that can't be":      {[]string{"--listen", "256.0.0.1:1"}, "256.0.0.1"},
		"an argument too many":          {[]string{"now"}, `"now"`},
		"a negative speed":              {[]string{"--speed", "-1"}, "speed -1"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), tc.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one about %s", err, tc.want)
			}
		})
	}
}
