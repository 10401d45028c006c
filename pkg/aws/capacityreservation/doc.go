// Package capacityreservation looks up EC2's capacity reservations and counts how many instances each can still take.
package capacityreservation
