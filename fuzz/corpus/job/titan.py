"""Two configurations of one family."""
from torchtitan.config import TrainingConfig, ParallelismConfig, CompileConfig
from . import model_registry


def llama3_8b() -> Trainer.Config:
    """The usual one.

    Of two lines.
    """
    model_spec = model_registry(
        "8B",
        converters=[
            Float8LinearConverter.Config(recipe_name="rowwise", model_compile_enabled=True),
        ],
    )
    return Trainer.Config(
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config()),
        model_spec=model_spec,
        optimizer=default_adamw(lr=3e-4),
        training=TrainingConfig(
            local_batch_size=1,
            seq_len=8 * 1024,  # not evaluated
            steps=1_000,
        ),
        parallelism=ParallelismConfig(data_parallel_shard_degree=-1, tensor_parallel_degree=2),
        compile=CompileConfig(enable=True, components=["model", "loss"]),
        activation_checkpoint=SelectiveAC.Config(),
        metrics=MetricsProcessor.Config(log_freq=10, enable_tensorboard=os.environ.get("TB", "") == "1"),
    )


def llama3_8b_full() -> Trainer.Config:
    config = llama3_8b()
    if config.training.steps > 5:
        config.training.steps = 5
    config.training.seq_len = 4096
    config.activation_checkpoint = FullAC.Config()
    return config


def llama3_8b_tokens() -> Trainer.Config:
    config = llama3_8b()
    config.model_spec = model_registry("8B", converters=[LoRAConverter.Config(rank=8, alpha=16.0)])
    config.training = TrainingConfig(
        num_tokens_per_microbatch_per_dp_rank=2 * 4096,
        max_context_length=4096,
    )
    return config
