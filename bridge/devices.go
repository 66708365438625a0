package bridge

// #include "tensorflow/c/c_api.h"
import "C"

// Version is the linked libtensorflow's version, such as "2.21.0" (TF_Version).
func Version() string { return C.GoString(C.TF_Version()) }
