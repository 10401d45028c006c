package aws

import (
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// http1 creates a client whose connections can be closed, so that nothing is left after a test.
type http1 struct{ transport *http.Transport }

func (h *http1) make() *http.Client {
	h.transport = &http.Transport{MaxIdleConnsPerHost: 64}
	return &http.Client{Transport: h.transport}
}

func (h *http1) close() { h.transport.CloseIdleConnections() }

// awsConfigForTests returns a configuration whose endpoint can't be reached.
func awsConfigForTests() aws.Config {
	return aws.Config{Region: "us-west-2", BaseEndpoint: aws.String("http://127.0.0.1:1"), Credentials: aws.AnonymousCredentials{}}
}
