package aws

// dedicated is the tenancy of instances on single-tenant hardware.
const dedicated = "dedicated"

// dedicatedShare is the assumed price of an instance on single-tenant hardware as a multiple of the price on shared hardware. In the price list it is
// 2 % to 10 % above. The fee per region and hour is paid once and can't be attributed to an instance.
const dedicatedShare = 1.1
