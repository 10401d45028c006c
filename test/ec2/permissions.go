package ec2

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/dovetail-scheduler/dovetail/test/ec2/iam"
)

// This file asks a policy whether requests are allowed, with the actions, resources and condition keys that AWS's service authorization
// reference lists for them. What doesn't exist isn't asked about: the action answers that it doesn't.

// programKey is the access key of Env and AWSConfig. Only its requests are subject to Config.Policy; an administrator, or another program,
// signs with another key.
const programKey, adminKey = "SIMULATED", "ADMINISTRATOR"

// parsePolicy fills in a policy's placeholders for this account.
func parsePolicy(c *Config) (*iam.Policy, error) {
	text := string(c.Policy)
	for name, value := range map[string]string{
		"Partition": "aws", "Region": c.Region, "Account": c.Account, "Cluster": c.Cluster, "NodeRole": c.Role, "Queue": c.Queue,
	} {
		text = strings.ReplaceAll(text, "${"+name+"}", value)
	}
	return iam.Parse([]byte(text))
}

// PolicyGrants returns each action of each statement of Config.Policy, and PolicyNeeded those without which a request so far would have
// been refused.
func (s *Sim) PolicyGrants() []iam.Grant { return s.world.policy.Grants() }
func (s *Sim) PolicyNeeded() []iam.Grant { return s.world.policy.Needed() }

// SetPolicy replaces Config.Policy.
func (s *Sim) SetPolicy(policy []byte) error {
	cfg := s.cfg
	cfg.Policy = policy
	parsed, err := parsePolicy(&cfg)
	if err == nil {
		s.with(func(w *world) { w.policy = parsed })
	}
	return err
}

// PolicyDenied returns which requests Config.Policy has refused: "ACTION on RESOURCE".
func (s *Sim) PolicyDenied() []string { return s.world.policy.Denied() }

// asker asks the policy for one request. Its nil value allows everything.
type asker struct {
	w *world
	r *Request
	// answers are those so far, for what doesn't depend on more than action and resource.
	answers map[string]*apiError
}

// asker returns who asks for a request. The result is nil if the request may do everything.
func (w *world) asker(r *Request) *asker {
	if w.policy == nil || signedBy(r.http) != programKey {
		return nil
	}
	return &asker{w, r, map[string]*apiError{}}
}

// may asks whether an action on a resource is allowed, and returns AWS's answer if it isn't.
func (a *asker) may(action, arn string, more ...func(iam.Context)) *apiError {
	ctx := iam.Context{}
	ctx.Set("aws:RequestedRegion", a.w.cfg.Region)
	ctx.Set("ec2:Region", a.w.cfg.Region)
	for _, f := range more {
		f(ctx)
	}
	if a.w.policy.Allows(iam.Query{Action: action, Resource: arn, Context: ctx}) {
		return nil
	}
	return denied(a.w.cfg.Account, action, arn)
}

// once is may for a resource that many choices of a launch name.
func (a *asker) once(key, action, arn string, more ...func(iam.Context)) *apiError {
	key += " " + action + " " + arn
	err, asked := a.answers[key]
	if !asked {
		err = a.may(action, arn, more...)
		a.answers[key] = err
	}
	return err
}

// denied returns the error of an action that isn't allowed, in the words of the action's service.
func denied(account, action, arn string) *apiError {
	service, _, _ := strings.Cut(action, ":")
	message := fmt.Sprintf("User: arn:aws:sts::%s:assumed-role/DovetailScheduler/simulated is not authorized to perform: %s on resource: %s because no identity-based policy allows the %s action",
		account, action, arn, action)
	switch service {
	case "ec2":
		return &apiError{Code: "UnauthorizedOperation", Status: http.StatusForbidden, Message: "You are not authorized to perform this operation. " + message}
	case "iam", "sts":
		return &apiError{Code: "AccessDenied", Status: http.StatusForbidden, Message: message}
	default:
		return &apiError{Code: "AccessDeniedException", Message: message}
	}
}

func resourceTags(tags map[string]string) func(iam.Context) {
	return func(c iam.Context) {
		c.Tags("aws:ResourceTag", tags)
		c.Tags("ec2:ResourceTag", tags)
	}
}

// requestTags are the tags that the request gives to the resource.
func requestTags(tags map[string]string) func(iam.Context) {
	return func(c iam.Context) {
		c.Tags("aws:RequestTag", tags)
		if len(tags) > 0 {
			c["aws:tagkeys"] = slices.Sorted(maps.Keys(tags))
		}
	}
}

func with(key, value string) func(iam.Context) {
	return func(c iam.Context) { c.Set(key, value) }
}

// permit returns an error if the policy doesn't allow a request. What a fleet's choices launch is asked by permitLaunch.
func (w *world) permit(r *Request) *apiError {
	a := w.asker(r)
	if a == nil {
		return nil
	}
	switch r.Service {
	case "ec2":
		return a.ec2()
	case "iam":
		return a.iam()
	case "sts":
		return nil // needs no permission
	case "arc-zonal-shift":
		return a.may("arc-zonal-shift:"+r.Action, strings.TrimPrefix(r.path, managedResources))
	case "pricing":
		return a.may("pricing:"+r.Action, "*")
	case "eks":
		name := strings.TrimPrefix(r.path, "/clusters/")
		return a.may("eks:"+r.Action, w.arn("eks", "cluster/"+name))
	case "ssm":
		return a.ssm()
	case "sqs":
		return a.sqs()
	}
	return denied(w.cfg.Account, r.Service+":"+r.Action, "*")
}

func (a *asker) ec2() *apiError {
	w, p := a.w, a.r.params
	switch action := "ec2:" + a.r.Action; a.r.Action {
	case "CreateTags", "DeleteTags":
		for _, id := range p.strs("ResourceId") {
			tags, err := w.tagsOf(id)
			if err != nil {
				continue
			}
			if err := a.may(action, w.arnOf(id), resourceTags(tags), requestTags(p.tags("Tag"))); err != nil {
				return err
			}
		}
		return nil
	case "TerminateInstances":
		for _, id := range p.strs("InstanceId") {
			tags, err := w.tagsOf(id)
			if err != nil {
				continue
			}
			if err := a.may(action, w.arnOf(id), resourceTags(tags)); err != nil {
				return err
			}
		}
		return nil
	case "CreateLaunchTemplate":
		return a.make(action, "launch-template", p.tagsFor("launch-template"))
	case "DeleteLaunchTemplate":
		t, err := w.template(p.str("LaunchTemplateId"), p.str("LaunchTemplateName"), "")
		if err != nil {
			return nil
		}
		return a.may(action, w.arnOf(t.id), resourceTags(t.tags))
	case "CreateFleet":
		return a.make(action, "fleet", p.tagsFor("fleet"))
	case "RunInstances":
		return nil // asked by permitLaunch
	default:
		return a.may(action, "*")
	}
}

// make asks whether a resource may be created, with tags.
func (a *asker) make(action, kind string, tags map[string]string) *apiError {
	arn := a.w.arn("ec2", kind+"/*")
	if err := a.may(action, arn, requestTags(tags)); err != nil || len(tags) == 0 {
		return err
	}
	_, creates, _ := strings.Cut(action, ":")
	return a.may("ec2:CreateTags", arn, requestTags(tags), with("ec2:CreateAction", creates))
}

// permitLaunch asks whether a choice may be launched. A fleet asks each question twice: CreateFleet and RunInstances are both checked
// for what is launched. The answer to a fleet's choice is an entry of its Errors. The dry run of a fleet launches nothing, so it doesn't ask
// for RunInstances: a program has to try that by itself.
func (w *world) permitLaunch(a *asker, c *choice, f *fleet) *apiError {
	if a == nil {
		return nil
	}
	actions := []string{"ec2:RunInstances"}
	dry := a.r.Action == "CreateFleet" && a.r.params.bool("DryRun")
	switch {
	case dry:
		actions = []string{"ec2:CreateFleet"}
	case a.r.Action == "CreateFleet":
		actions = append(actions, "ec2:CreateFleet")
	}
	for _, action := range actions {
		if err := a.launchFrom(action, c); err != nil {
			return err
		}
		if err := a.launched(action, c, f); err != nil {
			return err
		}
	}
	p := w.profiles[c.data.profile]
	if p == nil || p.role == "" || dry {
		return nil
	}
	err := a.once("", "iam:PassRole", "arn:aws:iam::"+w.cfg.Account+":role/"+p.role, with("iam:PassedToService", "ec2.amazonaws.com"))
	if err == nil {
		return nil
	}
	return &apiError{Code: "UnauthorizedOperation", Status: err.Status, Message: "You are not authorized to perform this operation. " + err.Message} // EC2 is asked, not IAM
}

// launchFrom asks about everything that exists and that a launch uses.
func (a *asker) launchFrom(action string, c *choice) *apiError {
	w, d := a.w, c.data
	ids := append([]string{c.config.ID, d.image, d.reservation}, d.groups...)
	if c.subnet != nil {
		ids = append(ids, c.subnet.id)
	}
	for _, v := range d.volumes {
		ids = append(ids, v.Snapshot)
	}
	for _, id := range ids {
		if id == "" {
			continue
		}
		tags, _ := w.tagsOf(id)
		if rsv := w.reservation(id); rsv != nil {
			tags = rsv.Tags
		}
		if err := a.once("", action, w.arnOf(id), resourceTags(tags), with("ec2:IsLaunchTemplateResource", fmt.Sprint(c.config.ID != ""))); err != nil {
			return err
		}
	}
	if g, _ := w.placementGroup(d.placement); g != nil {
		return a.once("", action, w.arn("ec2", "placement-group/"+g.name), resourceTags(g.tags))
	}
	return nil
}

// launched asks about everything that a launch creates, and its tags.
func (a *asker) launched(action string, c *choice, f *fleet) *apiError {
	kinds := []string{"instance", "volume", "network-interface"}
	// A request for a spot instance is a resource of its own only where it is tagged.
	if more := len(c.data.tags["spot-instances-request"]) + len(f.tags["spot-instances-request"]); more > 0 && action == "ec2:RunInstances" {
		kinds = append(kinds, "spot-instances-request")
	}
	market := cmp.Or(c.data.market, "on-demand")
	if f.capacityType == spot {
		market = spot
	}
	_, creates, _ := strings.Cut(action, ":")
	for _, kind := range kinds {
		tags := merged(c.data.tags[kind], f.tags[kind])
		arn := a.w.arn("ec2", kind+"/*")
		// All choices of a launch template create the same, but for the type.
		key := c.config.ID + " " + c.data.typ
		about := []func(iam.Context){requestTags(tags), with("ec2:InstanceType", c.data.typ), with("ec2:InstanceMarketType", market)}
		if err := a.once(key, action, arn, about...); err != nil {
			return err
		}
		if len(tags) == 0 {
			continue
		}
		if err := a.once(key+" "+creates, "ec2:CreateTags", arn, append(about, with("ec2:CreateAction", creates))...); err != nil {
			return err
		}
	}
	return nil
}

// arnOf returns the ARN of a resource of EC2 by its ID. Images and snapshots have no account in theirs.
func (w *world) arnOf(id string) string {
	kind, _, _ := strings.Cut(id, "-")
	switch name := map[string]string{
		"i": "instance", "lt": "launch-template", "sg": "security-group", "cr": "capacity-reservation", "ami": "image", "snap": "snapshot", "subnet": "subnet",
	}[kind]; name {
	case "image", "snapshot":
		return "arn:aws:ec2:" + w.cfg.Region + "::" + name + "/" + id
	default:
		return w.arn("ec2", name+"/"+id)
	}
}

func (a *asker) iam() *apiError {
	w, p := a.w, a.r.params
	name := p.str("InstanceProfileName")
	arn := "arn:aws:iam::" + w.cfg.Account + ":instance-profile/" + name
	if own := w.profiles[name]; own != nil {
		arn = own.arn(w)
	}
	action := "iam:" + a.r.Action
	switch a.r.Action {
	case "CreateInstanceProfile":
		arn = "arn:aws:iam::" + w.cfg.Account + ":instance-profile" + p.str("Path") + name
		tags := p.tags("Tags.member")
		if err := a.may(action, arn, requestTags(tags)); err != nil || len(tags) == 0 {
			return err
		}
		return a.may("iam:TagInstanceProfile", arn, requestTags(tags))
	case "TagInstanceProfile":
		return a.may(action, arn, requestTags(p.tags("Tags.member")))
	case "AddRoleToInstanceProfile":
		if err := a.may(action, arn); err != nil {
			return err
		}
		return a.may("iam:PassRole", "arn:aws:iam::"+w.cfg.Account+":role/"+p.str("RoleName"), with("iam:PassedToService", "ec2.amazonaws.com"))
	case "ListInstanceProfiles":
		return a.may(action, "arn:aws:iam::"+w.cfg.Account+":instance-profile"+p.str("PathPrefix"))
	case "GetRole":
		return a.may(action, "arn:aws:iam::"+w.cfg.Account+":role/"+p.str("RoleName"))
	}
	return a.may(action, arn)
}

// ssm asks about parameters. AWS's own have no account in their ARN.
func (a *asker) ssm() *apiError {
	var in struct {
		Name, Path string
		Names      []string
	}
	if err := a.r.decode(&in); err != nil {
		return nil // the action says so
	}
	for _, name := range append(in.Names, in.Name, in.Path) {
		if name == "" {
			continue
		}
		bare, _, _ := strings.Cut(name, ":") // a version or a label
		account := a.w.cfg.Account
		if strings.HasPrefix(bare, "/aws/") {
			account = ""
		}
		arn := "arn:aws:ssm:" + a.w.cfg.Region + ":" + account + ":parameter/" + strings.TrimPrefix(bare, "/")
		if err := a.may("ssm:"+a.r.Action, arn); err != nil {
			return err
		}
	}
	return nil
}

func (a *asker) sqs() *apiError {
	var in struct{ QueueName, QueueUrl string }
	if err := a.r.decode(&in); err != nil {
		return nil
	}
	name := in.QueueName + in.QueueUrl[strings.LastIndex(in.QueueUrl, "/")+1:]
	action := map[string]string{"DeleteMessageBatch": "DeleteMessage"}[a.r.Action]
	if action == "" {
		action = a.r.Action
	}
	return a.may("sqs:"+action, a.w.arn("sqs", name))
}
