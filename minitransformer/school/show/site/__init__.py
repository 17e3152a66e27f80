"""The course as a folder of static files: chapters whose cells run in the browser, exercises, annotated code, steppers.

Any web server can serve the folder. Nothing in it is fetched from elsewhere but Python itself (Pyodide), whose address
`build` takes; without Python everything but running cells works, also from a file.
"""
