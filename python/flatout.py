"""MFU in any training loop of Python, by libflatout.

    meter = flatout.Meter("llama-3.1-8b", seq=8192, device="h100", devices=8)
    meter.step(tokens=8 * 8192)        # after each optimizer step: tokens of all devices
    meter.mfu(), meter.tokens_per_second()

    trainer.add_callback(flatout.trainer_callback(device="h100"))          # Hugging Face Trainer
    lightning.Trainer(callbacks=[flatout.lightning_callback(meter, tokens=...)])

One file without dependencies: copy it, or put its folder on PYTHONPATH. The library is found by FLATOUT_LIBRARY (a path), the
system's search, or beside this file. Figures that are not known are None, and nothing here stops a training run:
a callback that cannot count says so once and logs nothing.
"""

import ctypes
import ctypes.util
import os
import time
import warnings

__all__ = ["Error", "Meter", "Model", "lightning_callback", "peak_flops", "trainer_callback"]

RULES = {"mfu": 0, "mfu_causal": 1, "mfu_6n": 2}
FIGURES = {"last": 0, "smooth": 1, "mean": 2, "median": 3}


class Error(ValueError):
    """What the library refused, with its hint."""


def _open():
    here = os.path.dirname(os.path.abspath(__file__))
    names = [os.environ.get("FLATOUT_LIBRARY"), "libflatout.so.0", os.path.join(here, "libflatout.so.0"),
             os.path.join(here, "..", "lib", "libflatout.so.0"), ctypes.util.find_library("flatout")]
    for name in filter(None, names):
        try:
            return ctypes.CDLL(name)
        except OSError as e:
            last = e
            if name == os.environ.get("FLATOUT_LIBRARY"):
                raise ImportError("FLATOUT_LIBRARY: %s" % e) from e
    raise ImportError("libflatout.so.0 was not found (%s): install Flatout, or set FLATOUT_LIBRARY to its path" % last)


_lib = None


def _library():
    global _lib
    if _lib is None:
        lib = _open()
        p, d, i64, text = ctypes.c_void_p, ctypes.c_double, ctypes.c_int64, ctypes.c_char_p
        for name, result, *arguments in (
            ("flatout_error", text), ("flatout_hint", text), ("flatout_version", text),
            ("flatout_model_load", ctypes.c_int, text, ctypes.POINTER(p)),
            ("flatout_model_parse", ctypes.c_int, text, ctypes.c_size_t, ctypes.POINTER(p)),
            ("flatout_model_free", None, p),
            ("flatout_model_name", text, p),
            ("flatout_model_parameters", d, p, ctypes.c_int),
            ("flatout_model_flop_per_token", d, p, i64, ctypes.c_int),
            ("flatout_device_peak", ctypes.c_int, text, text, ctypes.POINTER(d), text, ctypes.c_size_t),
            ("flatout_meter_create", ctypes.c_int, p, i64, d, i64, ctypes.POINTER(p)),
            ("flatout_meter_free", None, p),
            ("flatout_meter_step", ctypes.c_int, p, d, d),
            ("flatout_meter_reset", None, p),
            ("flatout_meter_steps", i64, p),
            ("flatout_meter_mfu", d, p, ctypes.c_int, ctypes.c_int),
            ("flatout_meter_tokens_per_second", d, p, ctypes.c_int),
        ):
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
        _lib = lib
    return _lib


def _check(status):
    if status:
        lib = _library()
        hint = lib.flatout_hint().decode()
        raise Error(lib.flatout_error().decode() + (" (%s)" % hint if hint else ""))


def _known(value):
    return None if value != value else value


def version():
    """The library's version."""
    return _library().flatout_version().decode()


def peak_flops(device, dtype="bf16"):
    """The dense peak of one device in FLOP/s, by its name in Flatout's catalogue."""
    peak = ctypes.c_double()
    _check(_library().flatout_device_peak(device.encode(), dtype.encode(), ctypes.byref(peak), None, 0))
    return peak.value


class Model:
    """A model by the name of a preset, the path of a config.json, or the text of one (config=...)."""

    def __init__(self, name=None, config=None):
        self._handle = ctypes.c_void_p()
        self._lib = _library()
        if config is not None:
            text = config.encode()
            _check(self._lib.flatout_model_parse(text, len(text), ctypes.byref(self._handle)))
        else:
            _check(self._lib.flatout_model_load(name.encode(), ctypes.byref(self._handle)))

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.flatout_model_free(self._handle)

    @property
    def name(self):
        return self._lib.flatout_model_name(self._handle).decode()

    def parameters(self):
        """Every trainable weight, a tied head once."""
        return self._lib.flatout_model_parameters(self._handle, 0)

    def flop_per_token(self, seq, rule="mfu"):
        return self._lib.flatout_model_flop_per_token(self._handle, seq, RULES[rule])


class Meter:
    """Tokens and seconds in, MFU out. `model` is a Model or what Model takes; give `device` (a name) or `peak` (FLOP/s)."""

    def __init__(self, model, seq, device=None, devices=1, dtype="bf16", peak=None):
        if (device is None) == (peak is None):
            raise Error("give either device, a name of Flatout's catalogue, or peak in FLOP/s")
        self._lib = _library()
        self._handle = ctypes.c_void_p()
        self.model = model if isinstance(model, Model) else Model(model)
        self.seq = seq
        peak = peak_flops(device, dtype) if peak is None else peak
        _check(self._lib.flatout_meter_create(self.model._handle, seq, peak, devices, ctypes.byref(self._handle)))
        self._last = None

    def __del__(self):
        if getattr(self, "_handle", None):
            self._lib.flatout_meter_free(self._handle)

    def start(self):
        """Begins the clock: the next step() measures from here. Call it after evaluation and saving, which are no steps."""
        self._last = time.perf_counter()

    def step(self, tokens, seconds=None):
        """One optimizer step of `tokens` on all devices. Without seconds: since the step before, or start(); the first one
        only starts the clock."""
        now = time.perf_counter()
        if seconds is None:
            before, self._last = self._last, now
            if before is None:
                return
            seconds = now - before
        _check(self._lib.flatout_meter_step(self._handle, float(tokens), float(seconds)))

    def reset(self):
        self._lib.flatout_meter_reset(self._handle)
        self._last = None

    @property
    def steps(self):
        return self._lib.flatout_meter_steps(self._handle)

    def mfu(self, rule="mfu", figure="smooth"):
        """A fraction, or None before the first step. figure: last, smooth, mean, median."""
        return _known(self._lib.flatout_meter_mfu(self._handle, RULES[rule], FIGURES[figure]))

    def tokens_per_second(self, figure="smooth"):
        """Of all devices together; None before the first step."""
        return _known(self._lib.flatout_meter_tokens_per_second(self._handle, FIGURES[figure]))

    def figures(self):
        """What the callbacks log; {} before the first step."""
        found = {"mfu": self.mfu(), "mfu_causal": self.mfu("mfu_causal"), "tokens_per_second": self.tokens_per_second()}
        return {k: v for k, v in found.items() if v is not None}


def _warn(text):
    warnings.warn("flatout: no MFU: %s" % text, stacklevel=3)


def trainer_callback(device=None, devices=None, dtype="bf16", peak=None, seq=None, tokens=None):
    """A TrainerCallback of transformers that adds mfu, mfu_causal and tokens_per_second to what the Trainer logs.

    seq: tokens of a sequence; without it they are counted in the batches that the model is given (input_ids). tokens: of one
    optimizer step on all devices, in place of the count. devices: the Trainer's world size unless given. Steps are
    timed from one optimizer step to the next; evaluation and saving are left out.
    """
    from transformers import TrainerCallback

    class Callback(TrainerCallback):
        def __init__(self):
            self.meter = None
            self.seen = 0      # tokens of the micro-batches of this step on this process
            self.longest = 0
            self.hook = None
            self.given = False  # has said why there is no MFU

        def on_train_begin(self, args, state, control, model=None, **kwargs):
            if self.hook is not None:  # an exception ended a training before
                self.hook.remove()
                self.hook = None
            self.seen = 0
            self.meter = None  # its last step ended before the pause
            self.args = args
            self.model = model
            if model is not None and (tokens is None or seq is None):
                self.hook = model.register_forward_pre_hook(self._count, with_kwargs=True)

        def _count(self, module, positional, keywords):
            ids = keywords.get("input_ids", positional[0] if positional else None)
            if module.training and getattr(ids, "ndim", 0) == 2:
                self.seen += ids.shape[0] * ids.shape[1]
                self.longest = max(self.longest, ids.shape[1])

        def _make(self, world):
            try:
                config = self.model.config.to_json_string(use_diff=False)
                self.meter = Meter(Model(config=config), seq or self.longest, device=device, devices=devices or world,
                                   dtype=dtype, peak=peak)
            except (AttributeError, Error, ImportError, TypeError) as e:
                _warn(e)
                self.given = True

        def on_step_end(self, args, state, control, **kwargs):
            world = max(1, args.world_size)
            done = tokens if tokens is not None else self.seen * world
            if self.meter is None and not self.given and (seq or self.longest):
                self._make(world)
            if self.meter is not None and done > 0:
                self.meter.step(done)
            self.seen = 0

        def on_evaluate(self, args, state, control, **kwargs):
            self._go_on()

        def on_save(self, args, state, control, **kwargs):
            self._go_on()

        def _go_on(self):
            if self.meter is not None:
                self.meter.start()

        def on_log(self, args, state, control, logs=None, **kwargs):
            if self.meter is not None and logs is not None and "loss" in logs:
                logs.update(self.meter.figures())
                if state.log_history and state.log_history[-1].get("step") == state.global_step:
                    state.log_history[-1].update(self.meter.figures())

        def on_train_end(self, args, state, control, **kwargs):
            if self.hook is not None:
                self.hook.remove()
                self.hook = None

    return Callback()


def lightning_callback(meter, tokens):
    """A Callback of Lightning that logs mfu, mfu_causal and tokens_per_second after each optimizer step.

    tokens: of one optimizer step on all devices, a number or a function of the batch that gives those of one micro-batch on
    this process.
    """
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class MFU(Callback):
        def __init__(self):
            self.step = 0
            self.seen = 0

        def on_train_start(self, trainer, module):
            self.step = trainer.global_step  # above 0 in a run that goes on
            self.seen = 0

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
            if callable(tokens):
                self.seen += tokens(batch) * trainer.world_size
            if trainer.global_step == self.step:
                return
            self.step = trainer.global_step
            meter.step(self.seen if callable(tokens) else tokens)
            self.seen = 0
            self.log_dict(meter.figures())

        def on_validation_end(self, trainer, module):
            if not trainer.sanity_checking:
                meter.start()

    return MFU()
