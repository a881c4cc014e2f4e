/* TensorBoard event files: scalars of a run, written as it goes or afterwards.
 *
 * A file is a row of records (TFRecord: length, its masked CRC-32C, bytes, their masked CRC-32C), each one Event
 * message in protocol buffers' wire format. Sources: tensorflow.org/tutorials/load_data/tfrecord (the framing and the
 * mask), tensorboard/compat/proto/event.proto and summary.proto (field numbers),
 * protobuf.dev/programming-guides/encoding (the wire format), RFC 3720 appendix B.4 (check values of CRC-32C).
 *
 * Each writer begins a new file, whose name sorts after the existing ones, as TensorBoard needs it. A SessionLog
 * message reports a restart at step s: TensorBoard then drops what earlier files say about step s and later. Each
 * record is written with one call, so that a file which is being written ends in whole records. */
#ifndef FO_RECORD_TENSORBOARD_H
#define FO_RECORD_TENSORBOARD_H

#include "base/str.h"
#include "record/record.h"

struct fo_tensorboard {
	int fd;
	char *path;           /* of the file; heap */
	struct fo_str record; /* the record that is being made */
};

/* CRC-32C (Castagnoli) of n bytes, going on from `crc` (0 at the start). */
uint32_t fo_crc32c(uint32_t crc, const void *bytes, size_t n);

/* Begins a file in folder `dir`, which is made where it does not exist. `time` is Unix time; the first step will be
 * `step`. */
FO_CHECKED fo_status fo_tensorboard_open(struct fo_tensorboard *t, const char *dir, int64_t step, double time);
/* Reports a restart: step `step` and later ones will be written again. */
FO_CHECKED fo_status fo_tensorboard_restart(struct fo_tensorboard *t, int64_t step, double time);
/* The scalars of one step: value[f] by enum fo_step_field, those that are not finite are left out, time is
 * value[FO_STEP_TIME]. */
FO_CHECKED fo_status fo_tensorboard_step(struct fo_tensorboard *t, int64_t step,
					 const double value[FO_STEP_FIELD_COUNT]);
FO_CHECKED fo_status fo_tensorboard_eval(struct fo_tensorboard *t, int64_t step, double loss, double time);
void fo_tensorboard_close(struct fo_tensorboard *t);

/* All of a run that was read: one new file in `dir`. */
FO_CHECKED fo_status fo_tensorboard_export(const struct fo_record *r, const char *dir, char **path);

#endif
