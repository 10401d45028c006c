package sdk

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/version"
)

// sentAs records the user agents of requests and answers none.
type sentAs []string

func (s *sentAs) Do(r *http.Request) (*http.Response, error) {
	*s = append(*s, r.Header.Get("User-Agent"))
	return nil, errors.New("no answer")
}

// CloudTrail shows which build made a call.
func TestUserAgent(t *testing.T) {
	var sent sentAs
	cfg := awssdk.Config{Region: "us-west-2", Credentials: awssdk.AnonymousCredentials{}, HTTPClient: &sent}
	clients := newClients(cfg, clock.RealClock{}, retry.IsErrorRetryableFunc(func(error) awssdk.Ternary { return awssdk.FalseTernary }))
	_, _ = clients.EC2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
	_, _ = clients.SQS.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: awssdk.String("q")})
	if len(sent) != 2 {
		t.Fatalf("%d requests were sent", len(sent))
	}
	for _, agent := range sent {
		if !strings.Contains(agent, " dovetail/"+version.Version) || !strings.HasPrefix(agent, "aws-sdk-go-v2/") {
			t.Errorf("sent as %q", agent)
		}
	}
}
