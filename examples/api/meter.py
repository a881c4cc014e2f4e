"""The same meter in a Python training loop, by ctypes: no package needed. FLATOUT_LIB names the library where the
system's loader does not find it. Theirs is step(): here it only waits, as for 64 accelerators that are busy."""
import ctypes, os, sys, time
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p

MFU, MFU_CAUSAL, MFU_6N = 0, 1, 2           # flatout_rule
LAST, SMOOTH, MEAN, MEDIAN = 0, 1, 2, 3     # flatout_figure
lib = ctypes.CDLL(os.environ.get("FLATOUT_LIB", "libflatout.so.0"))
for name, result, *arguments in [
    ("flatout_error", c_char_p),
    ("flatout_model_load", c_int, c_char_p, POINTER(c_void_p)),
    ("flatout_device_peak", c_int, c_char_p, c_char_p, POINTER(c_double), c_char_p, c_size_t),
    ("flatout_meter_create", c_int, c_void_p, c_int64, c_double, c_int64, POINTER(c_void_p)),
    ("flatout_meter_step", c_int, c_void_p, c_double, c_double),
    ("flatout_meter_mfu", c_double, c_void_p, c_int, c_int),
    ("flatout_meter_free", None, c_void_p),
    ("flatout_model_free", None, c_void_p),
]:
    getattr(lib, name).restype, getattr(lib, name).argtypes = result, arguments

def check(status):
    if status:
        sys.exit("meter: " + lib.flatout_error().decode())

def step():  # tokens with loss that all devices together trained on
    time.sleep(0.03)
    return 16384

model, meter, peak, source = c_void_p(), c_void_p(), c_double(), ctypes.create_string_buffer(120)
check(lib.flatout_model_load(b"llama-3.1-8b", byref(model)))
check(lib.flatout_device_peak(b"h100", b"bf16", byref(peak), source, len(source)))
check(lib.flatout_meter_create(model, 8192, peak, 64, byref(meter)))
for i in range(20):  # their loop; the lines with `begin` and the meter are new
    begin = time.monotonic()
    tokens = step()
    check(lib.flatout_meter_step(meter, tokens, time.monotonic() - begin))
    if i % 5 == 4:
        print(f"step {i + 1:2}  MFU {100 * lib.flatout_meter_mfu(meter, MFU, SMOOTH):.1f} %")
print(f"median MFU {100 * lib.flatout_meter_mfu(meter, MFU, MEDIAN):.1f} % by rule mfu, "
      f"{100 * lib.flatout_meter_mfu(meter, MFU_CAUSAL, MEDIAN):.1f} % mfu_causal")
print(f"of {peak.value / 1e12:.0f} TFLOP/s bf16 dense x 64 ({source.value.decode()})")
lib.flatout_meter_free(meter)
lib.flatout_model_free(model)
