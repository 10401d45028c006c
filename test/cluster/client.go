package cluster

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client returns a client that has admin rights, no cache, and can watch. It is created once.
func (c *Cluster) Client() client.WithWatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		made, err := client.NewWithWatch(c.admin.config, client.Options{Scheme: Scheme, Mapper: c.mapper})
		if err != nil {
			panic(fmt.Sprintf("a client for a config that has worked before: %v", err))
		}
		c.client = made
	}
	return c.client
}

// Create creates the objects, up to 32 in parallel.
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
