#include "skills/backend.h"
#include <stdio.h>
const struct skill_backend_ops skill_files_ops = {.kind = "filesystem"};
void *skill_files_new(const struct skill_backend_config *cfg, char *ret_why)
{
    snprintf(ret_why, 256, "not yet");
    return NULL;
}
void skill_files_free(void *ctx)
{
}
