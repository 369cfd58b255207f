/* agent_state.c - see agent_state.h. */
#include "base/agent_state.h"
#include "base/file.h"

void agent_state_path(struct buf *out, const char *dir, struct str id, const char *suffix)
{
    buf_printf(out, "%s/agent-", dir);
    file_name_add(out, id);
    buf_add_z(out, suffix);
}
