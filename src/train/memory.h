/* Memory of this process and of this machine, in bytes, as Linux reports them. */
#ifndef FO_TRAIN_MEMORY_H
#define FO_TRAIN_MEMORY_H

#include <stdint.h>

/* Anonymous resident memory of this process; 0: not known. */
int64_t fo_memory_resident(void);
/* Memory that this process may still take: free memory, or what its control groups leave if that is less; 0: not known.
 */
int64_t fo_memory_available(void);
/* The same for page-locked and mapped memory beside a device: the process's own limits (ulimit -d, -v) bound it, too.
 */
int64_t fo_memory_mappable(void);

#endif
