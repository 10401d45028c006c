package aws

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

// ReleaseClass removes what was made for a class that nobody uses any more and that is about to go: the instance profiles of its role.
// Launch templates go by themselves when nobody has used them for a while. It may be called again.
func (p *Provider) ReleaseClass(ctx context.Context, nc *ec2nc.EC2NodeClass) error {
	p.DeleteNodeClass(nc.Name) // or a profile would be made anew
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

// ClusterCA is what nodes verify the API server with, base64 of PEM; false: it is not known yet.
func (p *Provider) ClusterCA() (string, bool) {
	ca := p.join.Load().ca
	return ca, ca != ""
}
