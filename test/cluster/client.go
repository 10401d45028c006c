package cluster

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client reads and writes as admin, without a cache, and watches. It is made once.
func (c *Cluster) Client() client.WithWatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		made, err := client.NewWithWatch(c.admin.config, client.Options{Scheme: Scheme})
		if err != nil {
			panic(fmt.Sprintf("a client for a config that has worked before: %v", err))
		}
		c.client = made
	}
	return c.client
}

// Create creates the objects, several at a time.
func (c *Cluster) Create(ctx context.Context, objects ...client.Object) error {
	writer := c.Client()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for _, object := range objects {
		group.Go(func() error {
			if err := writer.Create(ctx, object); err != nil {
				return fmt.Errorf("creating %T %s: %w", object, client.ObjectKeyFromObject(object), err)
			}
			return nil
		})
	}
	return group.Wait()
}
