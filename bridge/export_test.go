package bridge

// What the tests of what this machine does not have look into.
var (
	CheckVersionOf = checkVersion
	LibraryPathIn  = libraryPath
	CPUFeaturesOf  = cpuFeatures
	CompareLayouts = compareLayouts
)
