// Package dashboards checks that dashboards and alerts find what they ask for in scrapes of Dovetail.
package dashboards
