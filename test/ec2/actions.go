package ec2

import "context"

// action handles one kind of call. Its result is encoded in the protocol of the call's service; an *apiError becomes an error answer.
type action func(*Sim, context.Context, *Request) (any, error)

// actions holds everything that the simulator can do, by signing name and action.
var actions = map[string]action{
	"arc-zonal-shift.GetManagedResource": on((*world).getManagedResource),

	"ec2.CreateFleet":                    (*Sim).createFleetSlowly,
	"ec2.CreateLaunchTemplate":           on((*world).createLaunchTemplate),
	"ec2.CreateTags":                     on((*world).createTags),
	"ec2.DeleteLaunchTemplate":           on((*world).deleteLaunchTemplate),
	"ec2.DeleteTags":                     on((*world).deleteTags),
	"ec2.DescribeAvailabilityZones":      on((*world).describeAvailabilityZones),
	"ec2.DescribeCapacityReservations":   on((*world).describeCapacityReservations),
	"ec2.DescribeImages":                 on((*world).describeImages),
	"ec2.DescribeInstances":              on((*world).describeInstances),
	"ec2.DescribeInstanceStatus":         on((*world).describeInstanceStatus),
	"ec2.DescribeInstanceTypeOfferings":  on((*world).describeInstanceTypeOfferings),
	"ec2.DescribeInstanceTypes":          on((*world).describeInstanceTypes),
	"ec2.DescribePlacementGroups":        on((*world).describePlacementGroups),
	"ec2.DescribeLaunchTemplateVersions": on((*world).describeLaunchTemplateVersions),
	"ec2.DescribeLaunchTemplates":        on((*world).describeLaunchTemplates),
	"ec2.DescribeSecurityGroups":         on((*world).describeSecurityGroups),
	"ec2.DescribeSpotInstanceRequests":   on((*world).describeSpotInstanceRequests),
	"ec2.DescribeSpotPriceHistory":       on((*world).describeSpotPriceHistory),
	"ec2.DescribeSubnets":                on((*world).describeSubnets),
	"ec2.RunInstances":                   on((*world).runInstances),
	"ec2.TerminateInstances":             on((*world).terminateInstances),

	"eks.DescribeCluster": on((*world).describeCluster),

	"iam.AddRoleToInstanceProfile":      on((*world).addRoleToInstanceProfile),
	"iam.CreateInstanceProfile":         on((*world).createInstanceProfile),
	"iam.DeleteInstanceProfile":         on((*world).deleteInstanceProfile),
	"iam.GetInstanceProfile":            on((*world).getInstanceProfile),
	"iam.GetRole":                       on((*world).getRole),
	"iam.ListInstanceProfiles":          on((*world).listInstanceProfiles),
	"iam.RemoveRoleFromInstanceProfile": on((*world).removeRoleFromInstanceProfile),
	"iam.TagInstanceProfile":            on((*world).tagInstanceProfile),

	"pricing.GetProducts": on((*world).getProducts),

	"sqs.DeleteMessage":      on((*world).deleteMessage),
	"sqs.DeleteMessageBatch": on((*world).deleteMessageBatch),
	"sqs.GetQueueUrl":        (*Sim).getQueueURL,
	"sqs.ReceiveMessage":     (*Sim).receiveMessage,
	"sqs.SendMessage":        on((*world).sendMessage),

	"ssm.GetParameter":        on((*world).getParameter),
	"ssm.GetParameters":       on((*world).getParameters),
	"ssm.GetParametersByPath": on((*world).getParametersByPath),

	"sts.GetCallerIdentity": on((*world).getCallerIdentity),
}

// on turns a function on the world into an action, which holds the world's lock while it runs.
func on(f func(*world, *Request) (any, error)) action {
	return func(s *Sim, _ context.Context, r *Request) (answer any, err error) {
		s.with(func(w *world) { answer, err = f(w, r) })
		return answer, err
	}
}
