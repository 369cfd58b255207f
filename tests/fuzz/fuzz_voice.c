/* A file that an agent says is a voice note: what is read of it lies inside of it, and
 * makes sense. */
#include <stdlib.h>
#include "base/buf.h"
#include "base/jw.h"
#include "platform/discord/voice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);
    struct voice v;

    if (voice_read(str_make(data, size), &v)) {
        if (v.seconds <= 0 || v.seconds > 24 * 3600)
            abort();
        jw_obj(&w);
        voice_write(&w, &v);
        jw_end_obj(&w);
    }
    buf_done(&out);
    return 0;
}
