/* The step profile's parts for people: their words, and their colours in pictures. */
#ifndef FO_TIMELINE_PARTS_H
#define FO_TIMELINE_PARTS_H

#include "timeline/timeline.h"

extern const char *const fo_part_words[FO_PART_COUNT];
/* Colours of the style sheet (draw/draw.h: tone), by family: computation blue, green and yellow, communication orange,
 * waiting violet, the rest grey; the same as a trace's ledger has for the same work. */
extern const unsigned char fo_part_tone[FO_PART_COUNT];

#endif
