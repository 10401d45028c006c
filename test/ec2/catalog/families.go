package catalog

// family is a row of the built-in table. The properties of its types follow from the number of vCPUs by linear rules, as EC2 sizes and
// prices them; types that don't follow the rules are in irregular.
type family struct {
	name         string
	arch         string // x86 or arm
	maker        string
	ghz          float64
	gibPerVCPU   float64
	usdPerVCPU   float64 // $/h, on-demand, Linux, us-west-2
	nvmePerVCPU  float64 // GB
	bandwidth    *curve
	netX, ebsX   float64 // factors on bandwidth; 0 is 1
	sizes        string
	zones        string
	metalPremium float64 // factor on the price of .metal; 0 is 1
	old          bool    // not a current generation
	dedicatedEBS bool    // volumes don't share attachments with interfaces
	clear        bool    // no encryption in transit
	xen          bool    // not on Nitro
	efaFrom      int     // vCPUs from which EFA is supported; 0: never
}

// Sizes are "size" (vCPUs from the name: large is 2, xlarge 4, Nxlarge 4N) or "size=vCPUs".
const (
	sizes5   = "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge"
	sizes5m  = sizes5 + " metal=96"
	sizesC5  = "large xlarge 2xlarge 4xlarge 9xlarge 12xlarge 18xlarge 24xlarge metal=96"
	sizesG   = "medium large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge"
	sizesGm  = sizesG + " metal=64"
	sizes8g  = sizesG + " 24xlarge 48xlarge metal-24xl=96 metal-48xl=192"
	sizes6i  = "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge metal=128"
	sizes6a  = "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge 48xlarge metal=192"
	sizes7a  = "medium large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge 48xlarge metal-48xl=192"
	sizes7i  = "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge metal-24xl=96 metal-48xl=192"
	sizes7if = "large xlarge 2xlarge 4xlarge 8xlarge"
)

var families = []family{
	{name: "a1", arch: "arm", maker: "AWS", ghz: 2.3, gibPerVCPU: 2, usdPerVCPU: 0.0255, bandwidth: &a1, sizes: "medium large xlarge 2xlarge 4xlarge metal=16", zones: "ac", old: true, clear: true},

	{name: "c5", arch: "x86", maker: "Intel", ghz: 3.6, gibPerVCPU: 2, usdPerVCPU: 0.0425, bandwidth: &gen5, sizes: sizesC5, zones: "abcd", old: true, clear: true},
	{name: "c5a", arch: "x86", maker: "AMD", ghz: 3.3, gibPerVCPU: 2, usdPerVCPU: 0.0385, bandwidth: &c5amd, sizes: sizes5, zones: "abcd"},
	{name: "c5d", arch: "x86", maker: "Intel", ghz: 3.6, gibPerVCPU: 2, usdPerVCPU: 0.048, nvmePerVCPU: 25, bandwidth: &gen5, sizes: "large xlarge 2xlarge 4xlarge 9xlarge 18xlarge", zones: "abcd", clear: true},
	{name: "c6a", arch: "x86", maker: "AMD", ghz: 3.6, gibPerVCPU: 2, usdPerVCPU: 0.03825, bandwidth: &gen6, sizes: sizes6a, zones: "abcd", efaFrom: 192},
	{name: "c6g", arch: "arm", maker: "AWS", ghz: 2.5, gibPerVCPU: 2, usdPerVCPU: 0.034, bandwidth: &gen6g, sizes: sizesGm, zones: "abcd", metalPremium: 1.06, clear: true},
	{name: "c6gd", arch: "arm", maker: "AWS", ghz: 2.5, gibPerVCPU: 2, usdPerVCPU: 0.0384, nvmePerVCPU: 59.375, bandwidth: &gen6g, sizes: sizesGm, zones: "abcd", metalPremium: 1.06, clear: true},
	{name: "c6i", arch: "x86", maker: "Intel", ghz: 3.5, gibPerVCPU: 2, usdPerVCPU: 0.0425, bandwidth: &gen6, sizes: sizes6i, zones: "abcd", efaFrom: 128},
	{name: "c6id", arch: "x86", maker: "Intel", ghz: 3.5, gibPerVCPU: 2, usdPerVCPU: 0.0504, nvmePerVCPU: 59.375, bandwidth: &gen6, sizes: sizes6i, zones: "abcd", efaFrom: 128},
	{name: "c7a", arch: "x86", maker: "AMD", ghz: 3.7, gibPerVCPU: 2, usdPerVCPU: 0.05132, bandwidth: &gen6, sizes: sizes7a, zones: "abcd", dedicatedEBS: true, efaFrom: 192},
	{name: "c7g", arch: "arm", maker: "AWS", ghz: 2.6, gibPerVCPU: 2, usdPerVCPU: 0.03625, bandwidth: &gen7g, sizes: sizesGm, zones: "abcd", efaFrom: 64},
	{name: "c7gd", arch: "arm", maker: "AWS", ghz: 2.6, gibPerVCPU: 2, usdPerVCPU: 0.04536, nvmePerVCPU: 59.375, bandwidth: &gen7g, sizes: sizesGm, zones: "abcd", efaFrom: 64},
	{name: "c7i", arch: "x86", maker: "Intel", ghz: 3.2, gibPerVCPU: 2, usdPerVCPU: 0.044625, bandwidth: &gen6, sizes: sizes7i, zones: "abcd", dedicatedEBS: true, efaFrom: 192},
	{name: "c7i-flex", arch: "x86", maker: "Intel", ghz: 3.2, gibPerVCPU: 2, usdPerVCPU: 0.042395, bandwidth: &flex, sizes: sizes7if, zones: "abcd", dedicatedEBS: true},
	{name: "c8g", arch: "arm", maker: "AWS", ghz: 2.8, gibPerVCPU: 2, usdPerVCPU: 0.03988, bandwidth: &gen7g, sizes: sizes8g, zones: "abc", dedicatedEBS: true, efaFrom: 96},

	{name: "m5", arch: "x86", maker: "Intel", ghz: 3.1, gibPerVCPU: 4, usdPerVCPU: 0.048, bandwidth: &gen5, sizes: sizes5m, zones: "abcd", old: true, clear: true},
	{name: "m5a", arch: "x86", maker: "AMD", ghz: 2.5, gibPerVCPU: 4, usdPerVCPU: 0.043, bandwidth: &gen5a, sizes: sizes5, zones: "abc", clear: true},
	{name: "m5d", arch: "x86", maker: "Intel", ghz: 3.1, gibPerVCPU: 4, usdPerVCPU: 0.0565, nvmePerVCPU: 37.5, bandwidth: &gen5, sizes: sizes5m, zones: "abcd", clear: true},
	{name: "m6a", arch: "x86", maker: "AMD", ghz: 3.6, gibPerVCPU: 4, usdPerVCPU: 0.0432, bandwidth: &gen6, sizes: sizes6a, zones: "abcd", efaFrom: 192},
	{name: "m6g", arch: "arm", maker: "AWS", ghz: 2.5, gibPerVCPU: 4, usdPerVCPU: 0.0385, bandwidth: &gen6g, sizes: sizesGm, zones: "abcd", metalPremium: 1.06, clear: true},
	{name: "m6gd", arch: "arm", maker: "AWS", ghz: 2.5, gibPerVCPU: 4, usdPerVCPU: 0.0452, nvmePerVCPU: 59.375, bandwidth: &gen6g, sizes: sizesGm, zones: "abcd", metalPremium: 1.06, clear: true},
	{name: "m6i", arch: "x86", maker: "Intel", ghz: 3.5, gibPerVCPU: 4, usdPerVCPU: 0.048, bandwidth: &gen6, sizes: sizes6i, zones: "abcd", efaFrom: 128},
	{name: "m6id", arch: "x86", maker: "Intel", ghz: 3.5, gibPerVCPU: 4, usdPerVCPU: 0.059325, nvmePerVCPU: 59.375, bandwidth: &gen6, sizes: sizes6i, zones: "abcd", efaFrom: 128},
	{name: "m7a", arch: "x86", maker: "AMD", ghz: 3.7, gibPerVCPU: 4, usdPerVCPU: 0.05796, bandwidth: &gen6, sizes: sizes7a, zones: "abcd", dedicatedEBS: true, efaFrom: 192},
	{name: "m7g", arch: "arm", maker: "AWS", ghz: 2.6, gibPerVCPU: 4, usdPerVCPU: 0.0408, bandwidth: &gen7g, sizes: sizesGm, zones: "abcd", efaFrom: 64},
	{name: "m7gd", arch: "arm", maker: "AWS", ghz: 2.6, gibPerVCPU: 4, usdPerVCPU: 0.053394, nvmePerVCPU: 59.375, bandwidth: &gen7g, sizes: sizesGm, zones: "abcd", efaFrom: 64},
	{name: "m7i", arch: "x86", maker: "Intel", ghz: 3.2, gibPerVCPU: 4, usdPerVCPU: 0.0504, bandwidth: &gen6, sizes: sizes7i, zones: "abcd", dedicatedEBS: true, efaFrom: 192},
	{name: "m7i-flex", arch: "x86", maker: "Intel", ghz: 3.2, gibPerVCPU: 4, usdPerVCPU: 0.04788, bandwidth: &flex, sizes: sizes7if, zones: "abcd", dedicatedEBS: true},
	{name: "m8g", arch: "arm", maker: "AWS", ghz: 2.8, gibPerVCPU: 4, usdPerVCPU: 0.04488, bandwidth: &gen7g, sizes: sizes8g, zones: "abc", dedicatedEBS: true, efaFrom: 96},

	{name: "r5", arch: "x86", maker: "Intel", ghz: 3.1, gibPerVCPU: 8, usdPerVCPU: 0.063, bandwidth: &gen5, sizes: sizes5m, zones: "abcd", old: true, clear: true},
	{name: "r5a", arch: "x86", maker: "AMD", ghz: 2.5, gibPerVCPU: 8, usdPerVCPU: 0.0565, bandwidth: &gen5a, sizes: sizes5, zones: "abc", clear: true},
	{name: "r5d", arch: "x86", maker: "Intel", ghz: 3.1, gibPerVCPU: 8, usdPerVCPU: 0.072, nvmePerVCPU: 37.5, bandwidth: &gen5, sizes: sizes5m, zones: "abcd", clear: true},
	{name: "r6a", arch: "x86", maker: "AMD", ghz: 3.6, gibPerVCPU: 8, usdPerVCPU: 0.0567, bandwidth: &gen6, sizes: sizes6a, zones: "abcd", efaFrom: 192},
	{name: "r6g", arch: "arm", maker: "AWS", ghz: 2.5, gibPerVCPU: 8, usdPerVCPU: 0.0504, bandwidth: &gen6g, sizes: sizesGm, zones: "abcd", metalPremium: 1.06, clear: true},
	{name: "r6gd", arch: "arm", maker: "AWS", ghz: 2.5, gibPerVCPU: 8, usdPerVCPU: 0.0576, nvmePerVCPU: 59.375, bandwidth: &gen6g, sizes: sizesGm, zones: "abcd", metalPremium: 1.06, clear: true},
	{name: "r6i", arch: "x86", maker: "Intel", ghz: 3.5, gibPerVCPU: 8, usdPerVCPU: 0.063, bandwidth: &gen6, sizes: sizes6i, zones: "abcd", efaFrom: 128},
	{name: "r6id", arch: "x86", maker: "Intel", ghz: 3.5, gibPerVCPU: 8, usdPerVCPU: 0.0756, nvmePerVCPU: 59.375, bandwidth: &gen6, sizes: sizes6i, zones: "abcd", efaFrom: 128},
	{name: "r7a", arch: "x86", maker: "AMD", ghz: 3.7, gibPerVCPU: 8, usdPerVCPU: 0.076075, bandwidth: &gen6, sizes: sizes7a, zones: "abc", dedicatedEBS: true, efaFrom: 192},
	{name: "r7g", arch: "arm", maker: "AWS", ghz: 2.6, gibPerVCPU: 8, usdPerVCPU: 0.05355, bandwidth: &gen7g, sizes: sizesGm, zones: "abcd", efaFrom: 64},
	{name: "r7gd", arch: "arm", maker: "AWS", ghz: 2.6, gibPerVCPU: 8, usdPerVCPU: 0.06804, nvmePerVCPU: 59.375, bandwidth: &gen7g, sizes: sizesGm, zones: "abcd", efaFrom: 64},
	{name: "r7i", arch: "x86", maker: "Intel", ghz: 3.2, gibPerVCPU: 8, usdPerVCPU: 0.06615, bandwidth: &gen6, sizes: sizes7i, zones: "abcd", dedicatedEBS: true, efaFrom: 192},
	{name: "r8g", arch: "arm", maker: "AWS", ghz: 2.8, gibPerVCPU: 8, usdPerVCPU: 0.05891, bandwidth: &gen7g, sizes: sizes8g, zones: "abc", dedicatedEBS: true, efaFrom: 96},

	{name: "i3", arch: "x86", maker: "Intel", ghz: 2.3, gibPerVCPU: 7.625, usdPerVCPU: 0.078, nvmePerVCPU: 237.5, bandwidth: &i3, xen: true, sizes: "large xlarge 2xlarge 4xlarge 8xlarge 16xlarge", zones: "abcd", clear: true},
	{name: "i4i", arch: "x86", maker: "Intel", ghz: 3.5, gibPerVCPU: 8, usdPerVCPU: 0.0858, nvmePerVCPU: 234.375, bandwidth: &gen6, netX: 1.5, sizes: "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 32xlarge metal=128", zones: "abcd", efaFrom: 128},
	{name: "x2gd", arch: "arm", maker: "AWS", ghz: 2.5, gibPerVCPU: 16, usdPerVCPU: 0.0835, nvmePerVCPU: 59.375, bandwidth: &gen6g, sizes: sizesGm, zones: "abcd", metalPremium: 1.1, clear: true},
	{name: "x2idn", arch: "x86", maker: "Intel", ghz: 3.5, gibPerVCPU: 16, usdPerVCPU: 0.104203, nvmePerVCPU: 29.6875, bandwidth: &gen6, netX: 2, ebsX: 2, sizes: "16xlarge 24xlarge 32xlarge metal=128", zones: "abc", efaFrom: 128},
	{name: "x2iedn", arch: "x86", maker: "Intel", ghz: 3.5, gibPerVCPU: 32, usdPerVCPU: 0.208406, nvmePerVCPU: 29.6875, bandwidth: &gen6, netX: 2, ebsX: 2, sizes: "4xlarge 8xlarge 16xlarge 24xlarge 32xlarge metal=128", zones: "abc", efaFrom: 128},
	{name: "z1d", arch: "x86", maker: "Intel", ghz: 4, gibPerVCPU: 8, usdPerVCPU: 0.093, nvmePerVCPU: 37.5, bandwidth: &z1d, sizes: "large xlarge 2xlarge 6xlarge", zones: "abc", clear: true},
}

// irregular is a type whose size doesn't follow from its name.
type irregular struct {
	name     string
	arch     string
	maker    string
	ghz      float64
	vcpus    int
	gib      float64
	usd      float64
	enis     int
	ips      int
	cards    int
	netGbps  float64
	ebsMbps  int
	nvmeGB   int64
	zones    string
	gpu      *GPU
	neuron   *Accelerator
	burst    bool
	efa      int
	onlyMain bool // no spot market
}

func gpu(n int, name string, mib int64) *GPU {
	return &GPU{Count: n, Manufacturer: "NVIDIA", Name: name, MemMiB: mib}
}

func neuron(n int, name string, cores int) *Accelerator {
	return &Accelerator{Kind: "neuron", Name: name, Count: n, CoresPerDevice: cores, MemMiB: 32768, Manufacturer: "AWS"}
}

var irregulars = []irregular{
	{"t3.nano", "x86", "Intel", 2.5, 2, 0.5, 0.0052, 2, 2, 1, 0.032, 43, 0, "abcd", nil, nil, true, 0, false},
	{"t3.micro", "x86", "Intel", 2.5, 2, 1, 0.0104, 2, 2, 1, 0.064, 87, 0, "abcd", nil, nil, true, 0, false},
	{"t3.small", "x86", "Intel", 2.5, 2, 2, 0.0208, 3, 4, 1, 0.128, 174, 0, "abcd", nil, nil, true, 0, false},
	{"t3.medium", "x86", "Intel", 2.5, 2, 4, 0.0416, 3, 6, 1, 0.256, 347, 0, "abcd", nil, nil, true, 0, false},
	{"t3.large", "x86", "Intel", 2.5, 2, 8, 0.0832, 3, 12, 1, 0.512, 695, 0, "abcd", nil, nil, true, 0, false},
	{"t3.xlarge", "x86", "Intel", 2.5, 4, 16, 0.1664, 4, 15, 1, 1.024, 695, 0, "abcd", nil, nil, true, 0, false},
	{"t3.2xlarge", "x86", "Intel", 2.5, 8, 32, 0.3328, 4, 15, 1, 2.048, 695, 0, "abcd", nil, nil, true, 0, false},
	{"t3a.nano", "x86", "AMD", 2.2, 2, 0.5, 0.0047, 2, 2, 1, 0.032, 45, 0, "abcd", nil, nil, true, 0, false},
	{"t3a.micro", "x86", "AMD", 2.2, 2, 1, 0.0094, 2, 2, 1, 0.064, 90, 0, "abcd", nil, nil, true, 0, false},
	{"t3a.small", "x86", "AMD", 2.2, 2, 2, 0.0188, 2, 4, 1, 0.128, 175, 0, "abcd", nil, nil, true, 0, false},
	{"t3a.medium", "x86", "AMD", 2.2, 2, 4, 0.0376, 3, 6, 1, 0.256, 350, 0, "abcd", nil, nil, true, 0, false},
	{"t3a.large", "x86", "AMD", 2.2, 2, 8, 0.0752, 3, 12, 1, 0.512, 695, 0, "abcd", nil, nil, true, 0, false},
	{"t3a.xlarge", "x86", "AMD", 2.2, 4, 16, 0.1504, 4, 15, 1, 1.024, 695, 0, "abcd", nil, nil, true, 0, false},
	{"t3a.2xlarge", "x86", "AMD", 2.2, 8, 32, 0.3008, 4, 15, 1, 2.048, 695, 0, "abcd", nil, nil, true, 0, false},
	{"t4g.nano", "arm", "AWS", 2.5, 2, 0.5, 0.0042, 2, 2, 1, 0.032, 43, 0, "abcd", nil, nil, true, 0, false},
	{"t4g.micro", "arm", "AWS", 2.5, 2, 1, 0.0084, 2, 2, 1, 0.064, 87, 0, "abcd", nil, nil, true, 0, false},
	{"t4g.small", "arm", "AWS", 2.5, 2, 2, 0.0168, 3, 4, 1, 0.128, 174, 0, "abcd", nil, nil, true, 0, false},
	{"t4g.medium", "arm", "AWS", 2.5, 2, 4, 0.0336, 3, 6, 1, 0.256, 347, 0, "abcd", nil, nil, true, 0, false},
	{"t4g.large", "arm", "AWS", 2.5, 2, 8, 0.0672, 3, 12, 1, 0.512, 695, 0, "abcd", nil, nil, true, 0, false},
	{"t4g.xlarge", "arm", "AWS", 2.5, 4, 16, 0.1344, 4, 15, 1, 1.024, 695, 0, "abcd", nil, nil, true, 0, false},
	{"t4g.2xlarge", "arm", "AWS", 2.5, 8, 32, 0.2688, 4, 15, 1, 2.048, 695, 0, "abcd", nil, nil, true, 0, false},

	{"g4dn.xlarge", "x86", "Intel", 2.5, 4, 16, 0.526, 3, 10, 1, 5, 950, 125, "abcd", gpu(1, "T4", 16384), nil, false, 0, false},
	{"g4dn.2xlarge", "x86", "Intel", 2.5, 8, 32, 0.752, 3, 10, 1, 10, 1150, 225, "abcd", gpu(1, "T4", 16384), nil, false, 0, false},
	{"g4dn.4xlarge", "x86", "Intel", 2.5, 16, 64, 1.204, 3, 10, 1, 20, 4750, 225, "abcd", gpu(1, "T4", 16384), nil, false, 0, false},
	{"g4dn.8xlarge", "x86", "Intel", 2.5, 32, 128, 2.176, 4, 15, 1, 50, 9500, 900, "abcd", gpu(1, "T4", 16384), nil, false, 1, false},
	{"g4dn.12xlarge", "x86", "Intel", 2.5, 48, 192, 3.912, 8, 30, 1, 50, 9500, 900, "abcd", gpu(4, "T4", 16384), nil, false, 1, false},
	{"g4dn.16xlarge", "x86", "Intel", 2.5, 64, 256, 4.352, 4, 15, 1, 50, 9500, 900, "abcd", gpu(1, "T4", 16384), nil, false, 1, false},
	{"g4dn.metal", "x86", "Intel", 2.5, 96, 384, 7.824, 15, 50, 1, 100, 19000, 1800, "abcd", gpu(8, "T4", 16384), nil, false, 1, false},
	{"g5.xlarge", "x86", "AMD", 3.3, 4, 16, 1.006, 4, 15, 1, 2.5, 700, 250, "abc", gpu(1, "A10G", 22888), nil, false, 0, false},
	{"g5.2xlarge", "x86", "AMD", 3.3, 8, 32, 1.212, 4, 15, 1, 5, 850, 450, "abc", gpu(1, "A10G", 22888), nil, false, 0, false},
	{"g5.4xlarge", "x86", "AMD", 3.3, 16, 64, 1.624, 8, 30, 1, 10, 4750, 600, "abc", gpu(1, "A10G", 22888), nil, false, 0, false},
	{"g5.8xlarge", "x86", "AMD", 3.3, 32, 128, 2.448, 8, 30, 1, 25, 16000, 900, "abc", gpu(1, "A10G", 22888), nil, false, 1, false},
	{"g5.12xlarge", "x86", "AMD", 3.3, 48, 192, 5.672, 15, 50, 1, 40, 16000, 3800, "abc", gpu(4, "A10G", 22888), nil, false, 1, false},
	{"g5.16xlarge", "x86", "AMD", 3.3, 64, 256, 4.096, 8, 30, 1, 25, 16000, 1900, "abc", gpu(1, "A10G", 22888), nil, false, 1, false},
	{"g5.24xlarge", "x86", "AMD", 3.3, 96, 384, 8.144, 15, 50, 1, 50, 19000, 3800, "abc", gpu(4, "A10G", 22888), nil, false, 1, false},
	{"g5.48xlarge", "x86", "AMD", 3.3, 192, 768, 16.288, 7, 50, 1, 100, 19000, 7600, "abc", gpu(8, "A10G", 22888), nil, false, 1, false},
	{"g6.xlarge", "x86", "AMD", 3.4, 4, 16, 0.8048, 4, 15, 1, 2.5, 1000, 250, "abcd", gpu(1, "L4", 22888), nil, false, 0, false},
	{"g6.2xlarge", "x86", "AMD", 3.4, 8, 32, 0.9776, 4, 15, 1, 5, 2000, 450, "abcd", gpu(1, "L4", 22888), nil, false, 0, false},
	{"g6.4xlarge", "x86", "AMD", 3.4, 16, 64, 1.3232, 8, 30, 1, 10, 8000, 600, "abcd", gpu(1, "L4", 22888), nil, false, 0, false},
	{"g6.8xlarge", "x86", "AMD", 3.4, 32, 128, 2.0144, 8, 30, 1, 25, 16000, 900, "abcd", gpu(1, "L4", 22888), nil, false, 1, false},
	{"g6.12xlarge", "x86", "AMD", 3.4, 48, 192, 4.6016, 8, 30, 1, 40, 20000, 3760, "abcd", gpu(4, "L4", 22888), nil, false, 1, false},
	{"g6.16xlarge", "x86", "AMD", 3.4, 64, 256, 3.3968, 15, 50, 1, 25, 20000, 1880, "abcd", gpu(1, "L4", 22888), nil, false, 1, false},
	{"g6.24xlarge", "x86", "AMD", 3.4, 96, 384, 6.6752, 15, 50, 1, 50, 30000, 3760, "abcd", gpu(4, "L4", 22888), nil, false, 1, false},
	{"g6.48xlarge", "x86", "AMD", 3.4, 192, 768, 13.3504, 15, 50, 1, 100, 60000, 7520, "abcd", gpu(8, "L4", 22888), nil, false, 1, false},
	{"p3.2xlarge", "x86", "Intel", 2.7, 8, 61, 3.06, 4, 15, 1, 2.5, 1750, 0, "abc", gpu(1, "V100", 16384), nil, false, 0, false},
	{"p3.8xlarge", "x86", "Intel", 2.7, 32, 244, 12.24, 8, 30, 1, 10, 7000, 0, "abc", gpu(4, "V100", 16384), nil, false, 0, false},
	{"p3.16xlarge", "x86", "Intel", 2.7, 64, 488, 24.48, 8, 30, 1, 25, 14000, 0, "abc", gpu(8, "V100", 16384), nil, false, 0, false},
	{"p4d.24xlarge", "x86", "Intel", 3, 96, 1152, 21.957642, 60, 50, 4, 400, 19000, 8000, "abcd", gpu(8, "A100", 40960), nil, false, 4, false},
	{"inf2.xlarge", "x86", "AMD", 3.6, 4, 16, 0.7582, 4, 15, 1, 2.083, 1250, 0, "abcd", nil, neuron(1, "Inferentia2", 2), false, 0, false},
	{"inf2.8xlarge", "x86", "AMD", 3.6, 32, 128, 1.96786, 8, 30, 1, 16.667, 10000, 0, "abcd", nil, neuron(1, "Inferentia2", 2), false, 0, false},
	{"inf2.24xlarge", "x86", "AMD", 3.6, 96, 384, 6.49063, 15, 50, 1, 50, 30000, 0, "abcd", nil, neuron(6, "Inferentia2", 2), false, 0, false},
	{"inf2.48xlarge", "x86", "AMD", 3.6, 192, 768, 12.98127, 15, 50, 1, 100, 60000, 0, "abcd", nil, neuron(12, "Inferentia2", 2), false, 0, false},
	{"trn1.2xlarge", "x86", "Intel", 3.5, 8, 32, 1.34375, 4, 15, 1, 3.125, 5000, 474, "bd", nil, neuron(1, "Trainium", 2), false, 0, false},
	{"trn1.32xlarge", "x86", "Intel", 3.5, 128, 512, 21.5, 40, 50, 8, 800, 80000, 7600, "bd", nil, neuron(16, "Trainium", 2), false, 8, false},
	{"c5n.large", "x86", "Intel", 3.4, 2, 5.25, 0.108, 3, 10, 1, 3, 650, 0, "abcd", nil, nil, false, 0, false},
	{"c5n.xlarge", "x86", "Intel", 3.4, 4, 10.5, 0.216, 4, 15, 1, 5, 1150, 0, "abcd", nil, nil, false, 0, false},
	{"c5n.2xlarge", "x86", "Intel", 3.4, 8, 21, 0.432, 4, 15, 1, 10, 2300, 0, "abcd", nil, nil, false, 0, false},
	{"c5n.4xlarge", "x86", "Intel", 3.4, 16, 42, 0.864, 8, 30, 1, 15, 4750, 0, "abcd", nil, nil, false, 0, false},
	{"c5n.9xlarge", "x86", "Intel", 3.4, 36, 96, 1.944, 8, 30, 1, 50, 9500, 0, "abcd", nil, nil, false, 1, false},
	{"c5n.18xlarge", "x86", "Intel", 3.4, 72, 192, 3.888, 15, 50, 1, 100, 19000, 0, "abcd", nil, nil, false, 1, false},
	{"u-6tb1.112xlarge", "x86", "Intel", 2.1, 448, 6144, 54.6, 15, 50, 1, 100, 38000, 0, "abc", nil, nil, false, 0, true},
}
