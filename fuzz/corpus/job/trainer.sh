set -e
deepspeed --num_gpus 8 train.py --model_name_or_path Qwen/Qwen3-8B --deepspeed configs/ds_z3.json \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --gradient_checkpointing True --bf16 True \
  --num_train_epochs 1 --lr_scheduler_type cosine --max_seq_length 2048
