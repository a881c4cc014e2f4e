/* Caps on what a configuration may ask for, shared by the files of this folder. They bound hostile input, far above any
 * published model: 2^24 is 60 times the largest vocabulary known, 10,000 layers 80 times the deepest preset. */
#ifndef FO_MODEL_MODEL_INT_H
#define FO_MODEL_MODEL_INT_H

#define FO_MODEL_MAX_LAYERS 10000
#define FO_MODEL_MAX_DIM (1 << 24)
#define FO_MODEL_MAX_EXPERTS 65536
#define FO_MODEL_MAX_POSITION (1 << 30)
#define FO_MODEL_MAX_CONFIG (1 << 20) /* bytes of a config.json; real ones have 1 to 30 KiB */

/* Features that keep an architecture out which fo_model_parse does not know ("LayerNorm and ..."); NULL: nobody looked
 * them up. */
const char *fo_model_type_differs(const char *model_type);

#endif
