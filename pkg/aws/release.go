package aws

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

// ReleaseClass removes the instance profiles that were created for the role of a class that is about to be deleted and that no claim
// uses any more. keepTidy removes its launch templates when they have been unused for a while. ReleaseClass may be called again.
func (p *Provider) ReleaseClass(ctx context.Context, nc *ec2nc.EC2NodeClass) error {
	p.DeleteNodeClass(nc.Name) // otherwise the resolver would create a new profile
	if nc.Spec.Role == "" || nc.UID == "" {
		return nil
	}
	own := p.profilePath(string(nc.UID) + "/")
	pages := iam.NewListInstanceProfilesPaginator(p.iam, &iam.ListInstanceProfilesInput{PathPrefix: &own})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("listing the instance profiles of EC2NodeClass %s: %w", nc.Name, err)
		}
		for i := range page.InstanceProfiles {
			if err := p.deleteProfile(ctx, own, &page.InstanceProfiles[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// ClusterCA returns the certificates with which nodes verify the API server, as base64 of PEM; false: not known yet.
func (p *Provider) ClusterCA() (string, bool) {
	ca := p.join.Load().ca
	return ca, ca != ""
}
