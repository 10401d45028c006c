package ec2

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// AWSConfig returns an SDK configuration for the program under test, which is subject to Config.Policy.
func (s *Sim) AWSConfig() aws.Config { return s.signedAs(programKey) }

// AdminConfig returns an SDK configuration for somebody who may do everything.
func (s *Sim) AdminConfig() aws.Config { return s.signedAs(adminKey) }

func (s *Sim) signedAs(key string) aws.Config {
	return aws.Config{
		Region: s.cfg.Region, BaseEndpoint: aws.String(s.url),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: key, SecretAccessKey: "simulated", Source: "EC2 simulator"}, nil
		}),
	}
}
