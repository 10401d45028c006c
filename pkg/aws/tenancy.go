package aws

// dedicated is the tenancy of instances on single-tenant hardware.
const dedicated = "dedicated"

// dedicatedShare is the price of such an instance as a multiple of the shared price. The price list has a price for each, 2 % to 10 %
// above; the fee per region and hour is paid once and can't be attributed to an instance.
const dedicatedShare = 1.1
