"""The same protocol the naive way: the jobs live in the memory of the web process.

It answers 202 with a Location just like the real one, and runs the work after the response, in
the web process (FastAPI's BackgroundTasks). The course kills it to show what that is worth.

    python -m jobq.lab.naive PORT
"""

import sys
import uuid
from typing import Any

import uvicorn
from fastapi import BackgroundTasks, FastAPI, HTTPException, Request, Response

from jobq import sales
from jobq.owned import die_with_parent

app = FastAPI(docs_url=None, redoc_url=None)
jobs: dict[str, dict[str, Any]] = {}  # this is the mistake


@app.post("/reports", status_code=202)
def request_report(
    body: dict[str, Any], request: Request, response: Response, tasks: BackgroundTasks
) -> dict[str, Any]:
    """Promise a report, and remember the promise as long as this process lives."""
    job_id = uuid.uuid4().hex
    jobs[job_id] = {"id": job_id, "status": "queued", "result": None}
    tasks.add_task(_run, job_id, int(body["year"]))
    response.headers["Location"] = str(request.url_for("job_status", job_id=job_id))
    return {"job_id": job_id}


@app.get("/jobs/{job_id}")
def job_status(job_id: str) -> dict[str, Any]:
    """Tell where the job stands, if this process remembers it."""
    if job_id not in jobs:
        raise HTTPException(404, "Job not found")
    return jobs[job_id]


def _run(job_id: str, year: int) -> None:
    jobs[job_id]["status"] = "running"
    jobs[job_id].update(status="done", result=sales.report(year))


if __name__ == "__main__":
    die_with_parent(sys.stdin)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
