// Package podevents writes events about pods at a limited pace. It knows nothing of what they say.
package podevents
