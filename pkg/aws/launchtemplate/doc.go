// Package launchtemplate creates launch templates when a launch first needs them and removes those that are no longer in use. What a
// template contains is the caller's business: its name is a hash of the content.
package launchtemplate
