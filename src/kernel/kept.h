/* How long the caches beyond a core's own keep what nobody uses: rows of a machine profile that predictions go by
 * (cost/cost.h). On a machine of one's own that is for as long as nothing else is touched. In a virtual machine others
 * use the same cache, of which the system says neither how much nor how busy they are. */
#ifndef FO_KERNEL_KEPT_H
#define FO_KERNEL_KEPT_H

#include "hw/profile.h"

/* Takes about so many seconds: what was read is left alone for some time, from nothing to 0.3 s, and read again. The
 * rows replace those of *m; without a cache of a level beyond the second, or an instruction that empties caches, there
 * are none. FO_ENOMEM: *m is as before. */
FO_CHECKED fo_status fo_kept_measure(double seconds, struct fo_limits *m);

#endif
