"""The console: a web page at the admin port, and the data and the live stream that it shows.

    static_files   the files of the page, in `pages/`
    sampler, hub   numbers of the whole broker once a second, their last hour, and the streams that get them
    routes         all routes under /admin/v2/magnetar/console

The room reads other rooms and changes nothing in them.
"""
