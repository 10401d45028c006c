package bootstrap

import "testing"

func TestOwnPowershell(t *testing.T) {
	for _, tt := range []struct{ own, commands, rest string }{
		{"", "", ""},
		{"a\nb", "a\nb", ""},
		{"<powershell>a</powershell>", "a", ""},
		{"<PowerShell>\na\n</POWERSHELL>\n<persist>true</persist>", "a", "<persist>true</persist>"},
		{"<powershell>a", "<powershell>a", ""}, // the user's own mistake
	} {
		if c, r := ownPowershell(tt.own); c != tt.commands || r != tt.rest {
			t.Errorf("%q: %q, %q", tt.own, c, r)
		}
	}
	if q := quotePowershell("it's"); q != "'it''s'" {
		t.Errorf("quoted %s", q)
	}
}
