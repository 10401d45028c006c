package model

import (
	"net/url"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		action, form, want string
	}{
		"a fleet":                    {"CreateFleet", "Action=CreateFleet&Version=2016-11-15&LaunchTemplateConfigs.1.Overrides.12.InstanceType=z9.large&Type=instant&TagSpecification.1.Tag.2.Key=a", ""},
		"a filter":                   {"DescribeInstances", "Filter.1.Name=x&Filter.1.Value.17=y&DryRun=true", ""},
		"no parameter of it":         {"DescribeInstances", "Filters.1.Name=x", "Filters.1.Name"},
		"a parameter of another":     {"TerminateInstances", "InstanceId.1=i-1&ImageId=ami-1", "ImageId"},
		"no value of the enum":       {"CreateFleet", "Type=sometimes", "sometimes"},
		"nested, no value of it":     {"CreateFleet", "SpotOptions.AllocationStrategy=cheapest", "SpotOptions.AllocationStrategy"},
		"an action that isn't there": {"DescribeWishes", "", "DescribeWishes"},
	} {
		t.Run(name, func(t *testing.T) {
			form, err := url.ParseQuery(tc.form)
			if err != nil {
				t.Fatal(err)
			}
			err = Check("ec2", tc.action, form, nil)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// Other services than EC2: IAM's parameters are in forms, those of the others in JSON objects.
func TestCheckOfOtherServices(t *testing.T) {
	for name, tc := range map[string]struct{ service, action, form, object, want string }{
		"a profile":                {"iam", "CreateInstanceProfile", "Action=CreateInstanceProfile&Version=2010-05-08&InstanceProfileName=a&Tags.member.1.Key=b", "", ""},
		"IAM, no parameter of it":  {"iam", "GetRole", "Role=a", "", "Role"},
		"messages":                 {"sqs", "ReceiveMessage", "", `{"QueueUrl":"q","MaxNumberOfMessages":10,"MessageSystemAttributeNames":["SentTimestamp"]}`, ""},
		"SQS, no value of it":      {"sqs", "ReceiveMessage", "", `{"MessageSystemAttributeNames":["Wish"]}`, "Wish"},
		"SQS, no parameter of it":  {"sqs", "DeleteMessageBatch", "", `{"Entries":[{"Id":"1","Handle":"x"}]}`, "Entries.1.Handle"},
		"prices":                   {"pricing", "GetProducts", "", `{"ServiceCode":"AmazonEC2","Filters":[{"Field":"a","Type":"TERM_MATCH","Value":"b"}]}`, ""},
		"prices, no value of it":   {"pricing", "GetProducts", "", `{"Filters":[{"Type":"TERM_WISH"}]}`, "TERM_WISH"},
		"a parameter":              {"ssm", "GetParameter", "", `{"Name":"/aws/service/x"}`, ""},
		"SSM, no parameter of it":  {"ssm", "GetParameter", "", `{"Names":["/aws/service/x"]}`, "Names"},
		"no object":                {"ssm", "GetParameter", "", `[]`, "invalid"},
		"EKS has none":             {"eks", "DescribeCluster", "", "", ""},
		"a service that isn't one": {"wishes", "GetWish", "", `{}`, "wishes"},
	} {
		t.Run(name, func(t *testing.T) {
			var form url.Values
			if tc.form != "" {
				var err error
				if form, err = url.ParseQuery(tc.form); err != nil {
					t.Fatal(err)
				}
			}
			err := Check(tc.service, tc.action, form, []byte(tc.object))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
