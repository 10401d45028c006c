package policy

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed cloudformation.yaml
var stack string

// CloudFormation returns a stack with everything that an account needs: the policy, a role for nodes, and the interruption queue.
func CloudFormation() ([]byte, error) {
	doc, err := Document(Scope{
		Partition: "${AWS::Partition}", Region: "${AWS::Region}", Account: "${AWS::AccountId}", Cluster: "${ClusterName}",
		NodeRole: "${NodeRole}", Queue: "${Interruptions.QueueName}",
	})
	if err != nil {
		return nil, err
	}
	const here = "          @POLICY@\n"
	if !strings.Contains(stack, here) {
		return nil, fmt.Errorf("the stack has no place for the policy")
	}
	indented := "          " + strings.ReplaceAll(strings.TrimSuffix(string(doc), "\n"), "\n", "\n          ") + "\n"
	return []byte(strings.Replace(stack, here, indented, 1)), nil
}
