package checkpoints_test

func saveUntilKilled(string) {}
