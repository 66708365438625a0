package bridge

// Open to the tests of runs and their configuration, of no use to users.
var (
	UpdatesVariable = updatingOps.MatchString
	CPUQuotaIn      = cpuQuota
	ConfigProto     = Config.proto
	FromTensorFlow  = errorFromTensorFlow
)
