
/device:GPU:0s