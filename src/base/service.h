/* service.h - state notifications to the service manager (systemd's protocol). */
#pragma once

/* "READY=1", "STATUS=asleep", ...  Nothing without NOTIFY_SOCKET; never waits. */
void service_tell(const char *what);
