package ec2

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
)

// An instance goes on in another simulator under its own ID, address and tags, and its software boots with the same user data. What is launched there
// afterwards gets another address.
func TestRestoredInstancesGoOn(t *testing.T) {
	first := newAccount(t)
	ids := first.launched(first.fleetOf(3, first.template("lt"), "on-demand", abc[:1], "m5.large"))
	first.step(3 * time.Second)
	must(first.ec2.TerminateInstances(first.ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids[:1]}))
	saved := first.Save()
	was := saved.Instances
	if len(was) != 2 || was[0].ID != ids[1] || string(was[0].UserData) != "hello" {
		t.Fatalf("saved: %+v", saved)
	}

	rec := &recorder{booted: map[string]Machine{}}
	second := newAccount(t, func(c *Config) { c.Machines = rec })
	if err := second.Restore(saved); err != nil {
		t.Fatal(err)
	}
	for _, was := range was {
		described := must(second.ec2.DescribeInstances(second.ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{was.ID}})).Reservations[0].Instances[0]
		if aws.ToString(described.PrivateIpAddress) != was.PrivateIP || described.State.Name != running || len(described.Tags) != len(was.Tags) {
			t.Errorf("%+v runs on as %+v", was, described)
		}
		if m := rec.booted[was.ID]; string(m.UserData) != "hello" || m.PrivateDNSName != was.PrivateDNSName || m.RootGiB == 0 {
			t.Errorf("%s booted as %+v", was.ID, m)
		}
	}
	// The launch template is there, too.
	second.launched(second.fleetOf(4, "lt", "on-demand", abc[:1], "m5.large"))
	addresses := map[string]bool{}
	for _, in := range second.Live() {
		addresses[in.PrivateIP] = true
	}
	if len(addresses) != 6 {
		t.Errorf("6 instances have %d addresses", len(addresses))
	}

	must(second.ec2.TerminateInstances(second.ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{was[0].ID}}))
	second.step(40 * time.Second)
	if got := second.states()[was[0].ID]; got != terminated {
		t.Errorf("after its termination it is %s", got)
	}

	for name, spoil := range map[string]func(*Saved){
		"it exists already":             func(*Saved) {},
		"there is no instance type big": func(s *Saved) { s.ID, s.Type = "i-1", "big" },
		"there is no image ami-0":       func(s *Saved) { s.ID, s.ImageID = "i-1", "ami-0" },
		"there is no subnet subnet-0":   func(s *Saved) { s.ID, s.SubnetID = "i-1", "subnet-0" },
		"is taken":                      func(s *Saved) { s.ID = "i-1" },
	} {
		one := was[1]
		spoil(&one)
		if err := second.Restore(State{Instances: []Saved{one}}); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), one.ID) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Copies of an instance live beside it, once they are restored.
func TestCopies(t *testing.T) {
	rec := &recorder{booted: map[string]Machine{}}
	account := newAccount(t, func(c *Config) { c.Machines = rec })
	model := account.launched(account.fleetOf(1, account.template("lt"), "on-demand", abc[:1], "m5.large"))[0]
	account.step(3 * time.Second)
	copies, err := account.Copies(model, 3)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(account.Live()); n != 1 {
		t.Errorf("%d instances live before they are restored", n)
	}
	copies[0].Tags["name"] = "first"
	if err := account.Restore(State{Instances: copies}); err != nil {
		t.Fatal(err)
	}
	addresses, names := map[string]bool{}, map[string]bool{}
	for _, in := range account.Live() {
		addresses[in.PrivateIP], names[in.PrivateDNSName] = true, true
		if in.Type != "m5.large" || string(rec.booted[in.ID].UserData) != "hello" || (in.Tags["name"] == "first") != (in.ID == copies[0].ID) {
			t.Errorf("a copy is %+v, and booted as %+v", in, rec.booted[in.ID])
		}
	}
	if len(addresses) != 4 || len(names) != 4 {
		t.Errorf("4 instances have %d addresses and %d names", len(addresses), len(names))
	}
	if _, err := account.Copies(model, 1<<14); err == nil {
		t.Error("a subnet has room for 16,384 copies")
	}
	if _, err := account.Copies("i-0", 1); err == nil {
		t.Error("an instance that isn't there can be copied")
	}
}
