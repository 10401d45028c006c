package reasons

// Same reports whether two reasons differ at most in numbers, such as what is left of a limit or how many nodes are in flight.
// These change with each plan and are no news for a pod that waits.
func Same(a, b string) bool {
	for a != b {
		i := 0
		for i < len(a) && i < len(b) && a[i] == b[i] {
			i++
		}
		for i > 0 && inNumber(a[i-1]) { // a number may begin before the difference
			i--
		}
		m, n := number(a[i:]), number(b[i:])
		if m == 0 || n == 0 || i > 0 && inName(a[i-1]) {
			return false
		}
		a, b = a[i+m:], b[i+n:]
	}
	return true
}

// number returns the length of the number at the beginning of the text, including its unit (0, 12, 1.5Gi, 3m20s, 12:30), or 0.
func number(s string) int {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0
	}
	n := 1
	for n < len(s) && inNumber(s[n]) {
		n++
	}
	return n
}

func inNumber(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '.' || c == ':'
}

// inName reports whether a number after the character is part of a name: pool-1, c5.large, v1_2.
func inName(c byte) bool { return inNumber(c) || c == '-' || c == '_' || c == '/' }
