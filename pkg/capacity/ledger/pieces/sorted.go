package pieces

import "slices"

// Insert adds a value to a list in the order of compare.
func Insert[T any](sorted []T, v T, compare func(a, b T) int) []T {
	i, _ := slices.BinarySearchFunc(sorted, v, compare)
	return slices.Insert(sorted, i, v)
}

// Remove removes a value from a list in the order of compare, if it is there. Others may be equal to it by compare.
func Remove[T comparable](sorted []T, v T, compare func(a, b T) int) []T {
	i, _ := slices.BinarySearchFunc(sorted, v, compare)
	for ; i < len(sorted) && compare(sorted[i], v) == 0; i++ {
		if sorted[i] == v {
			return slices.Delete(sorted, i, i+1)
		}
	}
	return sorted
}
