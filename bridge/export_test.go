package bridge

// UpdatesVariable and CPUQuotaIn open to the tests what users have no need of.
var (
	UpdatesVariable = updatingOps.MatchString
	CPUQuotaIn      = cpuQuota
)
